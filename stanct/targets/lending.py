"""Lends objects that are costly to load, and keeps them when they are returned."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Shelves(Generic[Item]):
    """Idle items, on one shelf for each key; the least recently used of too many is dropped.

    An item is used by one caller at a time. Callers may be in any thread.
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._shelves: OrderedDict[str, list[Item]] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def lend(self, key: str, load: Callable[[], Item]) -> Iterator[Item]:
        """Lend an item from the shelf `key`, or a newly loaded one, while the context lasts."""
        with self._lock:
            shelf = self._shelf(key)
            item = shelf.pop() if shelf else None
        if item is None:
            item = load()
        try:
            yield item
        finally:
            with self._lock:
                shelf.append(item)  # lost if the shelf was dropped in the meantime

    def put(self, key: str, item: Item) -> None:
        """Make an item the only one of the shelf `key`."""
        with self._lock:
            self._shelf(key)[:] = [item]

    def _shelf(self, key: str) -> list[Item]:
        shelf = self._shelves.setdefault(key, [])
        self._shelves.move_to_end(key)
        while len(self._shelves) > self._kept:
            self._shelves.popitem(last=False)
        return shelf
