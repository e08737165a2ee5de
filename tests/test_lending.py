"""Shelves: items are loaded if none is idle, and have one user at a time."""

from __future__ import annotations

from contextlib import ExitStack

from stanct.targets.lending import Shelves


class Loader:
    """Counts what it has loaded."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        return f"item {self.count}"


def test_what_was_given_back_is_lent_again() -> None:
    shelves, load = Shelves[str](2), Loader()
    for _ in range(3):
        with shelves.lend("one", load) as item:
            assert item == "item 1"


def test_no_item_has_two_users() -> None:
    shelves, load = Shelves[str](2), Loader()
    for _ in range(2):
        with ExitStack() as uses:
            items = {uses.enter_context(shelves.lend("one", load)) for _ in range(3)}
            assert items == {"item 1", "item 2", "item 3"}


def test_the_shelf_that_was_used_least_recently_is_dropped() -> None:
    shelves, load = Shelves[str](2), Loader()
    for key in ("one", "two", "one", "three"):
        with shelves.lend(key, load):
            pass
    assert load.count == 3
    with shelves.lend("one", load) as item:
        assert item == "item 1"
    with shelves.lend("two", load) as item:
        assert item == "item 4"


def test_what_is_given_back_to_a_dropped_shelf_is_not_lent_again() -> None:
    shelves, load = Shelves[str](1), Loader()
    with shelves.lend("one", load), shelves.lend("two", load):
        pass
    with shelves.lend("one", load) as item:
        assert item == "item 3"


def test_what_was_put_there_is_lent_first() -> None:
    shelves, load = Shelves[str](1), Loader()
    with shelves.lend("one", load):
        pass
    shelves.put("one", "mine")
    with shelves.lend("one", load) as item, shelves.lend("one", load) as other:
        assert (item, other) == ("mine", "item 2")
