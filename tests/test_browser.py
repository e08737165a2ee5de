"""The inspection of pages finds each fault that is planted, and nothing on a good page."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import Browser

GOOD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Good</title>
<link rel="icon" href="data:,"></head>
<body><main><h1>One</h1><section><h2 id="two">Two</h2><a href="#two">up</a>
<img alt="a dot" width="9"
 src="data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7">
<svg role="img" aria-label="A line of 2" width="90" height="20"><text x="2" y="15">word</text></svg>
<div style="overflow-x:auto"><p style="width:3000px">wide, but it scrolls by itself</p></div>
</section></main></body></html>"""

FAULTS = {
    "console error": ("<h1>", "<script>nothing.there</script><h1>"),
    "console error: late": ("<h1>", "<script>console.error('late')</script><h1>"),
    "missing image": ("data:image/gif;base64,R0lGODlh", "data:image/gif;base64,AAAA"),
    "not loaded": ("data:image/gif;base64,R0lGODlh", "no-such-file.png?"),
    "asks the network": ("<h1>", '<link rel="stylesheet" href="http://127.0.0.1:9/x.css"><h1>'),
    "horizontal scroll": ("overflow-x:auto", "margin:0"),
    "out of order": ("h2", "h3"),
    "no heading": ('<h2 id="two">Two</h2>', '<b id="two">Two</b>'),
    "empty heading": ("<h1>One", "<h1>"),
    "no text alternative: <img": ('alt="a dot"', ""),
    "no text alternative: <svg": ('role="img"', ""),
    "cut off": ('x="2"', 'x="80"'),
    "leads nowhere": ('href="#two"', 'href="#three"'),
    "no language": (' lang="en"', ""),
    "no title": ("<title>Good", "<title>"),
}


def address(folder: Path, page: str) -> str:
    (folder / "page.html").write_text(page, encoding="utf-8")
    return (folder / "page.html").as_uri()


def test_a_good_page(browser: Browser, tmp_path: Path) -> None:
    for width in (1280, 390):
        assert browser.open(address(tmp_path, GOOD), width) == []
        assert browser.evaluate("innerWidth") == width


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(browser: Browser, tmp_path: Path, fault: str) -> None:
    good, bad = FAULTS[fault]
    assert good in GOOD
    found = browser.open(address(tmp_path, GOOD.replace(good, bad)), 390)
    assert any(fault.removesuffix(": late") in words for words in found), found


def test_words_wider_than_a_phone_are_found_there_only(browser: Browser, tmp_path: Path) -> None:
    place = address(tmp_path, GOOD.replace("<h1>One", '<h1 style="width:800px">One'))
    assert browser.open(place, 1280) == []
    assert "horizontal scroll: 808 px in 390" in browser.open(place, 390)
