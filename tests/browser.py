"""A headless Chromium that opens pages and reports their faults.

It is driven by the DevTools protocol through a pipe. Each message is a JSON object followed by a
zero byte, so no driver and no package is needed.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# Names of the same browser on Debian, Fedora and macOS's Homebrew.
FOUND = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
PATIENCE = 120.0
"""Seconds to wait for an answer."""

# Faults that a reader would notice, in words; an empty list for a good page.
INSPECT = r"""
(() => {
  const faults = [];
  const words = (node) => node.outerHTML.slice(0, 80).replace(/\s+/g, " ");
  const shown = (node) => node.getClientRects().length > 0;
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth)
    faults.push(`horizontal scroll: ${root.scrollWidth} px in ${root.clientWidth}`);
  for (const image of document.images) {
    if (!image.complete || !image.naturalWidth) faults.push(`missing image: ${words(image)}`);
    if (!image.hasAttribute("alt")) faults.push(`no text alternative: ${words(image)}`);
  }
  for (const svg of document.querySelectorAll("svg:not(svg svg)")) {
    const hidden = svg.closest("[aria-hidden=true]") || !shown(svg);
    const control = svg.closest("a,button,label,summary");  // whose words its icon only repeats
    const named = control
      ? control.textContent.trim() || control.ariaLabel || control.control?.ariaLabel
      : svg.getAttribute("role") === "img" && svg.getAttribute("aria-label");
    if (!hidden && !named) faults.push(`no text alternative: ${words(svg)}`);
    const box = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text")) {
      const place = text.getBoundingClientRect();
      const out = Math.max(box.left - place.left, place.right - box.right,
                           box.top - place.top, place.bottom - box.bottom);
      if (place.width && out > 2) faults.push(`cut off in a picture: ${text.textContent.trim()}`);
    }
  }
  const headings = [...document.querySelectorAll("h1,h2,h3,h4,h5,h6")].filter(shown);
  let last = 0;
  for (const heading of headings) {
    const level = Number(heading.tagName[1]);
    if (level > last + 1 || (level === 1 && last)) faults.push(`out of order: ${words(heading)}`);
    if (!heading.textContent.trim()) faults.push(`empty heading: ${words(heading)}`);
    last = level;
  }
  if (!headings.length) faults.push("no heading");
  for (const section of document.querySelectorAll("section"))
    if (!section.querySelector("h1,h2,h3")) faults.push(`no heading in ${words(section)}`);
  for (const link of document.querySelectorAll('a[href^="#"]'))
    if (link.hash.length > 1 && !document.getElementById(decodeURIComponent(link.hash.slice(1))))
      faults.push(`leads nowhere: ${words(link)}`);
  for (const table of document.querySelectorAll("main table:not(.plain)"))
    if (!table.tHead || !table.tHead.rows.length) faults.push(`no head: ${words(table)}`);
  if (!root.lang) faults.push("no language");
  if (!document.title.trim()) faults.push("no title");
  return faults;
})()
"""


@dataclass(frozen=True)
class Browser:
    """A running Chromium with one tab; `requests` and `answers` are its pipe."""

    requests: Any
    answers: Any
    events: list[dict[str, Any]]
    numbers: Iterator[int]
    session: str = ""

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and wait for its answer; other messages are kept in `events`."""
        number = next(self.numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.requests.write(json.dumps(message).encode() + b"\0")
        self.requests.flush()
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        parts = bytearray()
        while (letter := self.answers.read(1)) != b"\0":
            assert letter, "Chromium has gone"
            parts += letter
        message = json.loads(parts)
        self.events.append(message)
        return message

    def wait(self, event: str) -> None:
        """Wait until an event of that name is among `events`."""
        until = time.monotonic() + PATIENCE
        while not any(e.get("method") == event for e in self.events):
            assert time.monotonic() < until, f"no {event}"
            self._next()

    def evaluate(self, expression: str) -> Any:
        """Evaluate a JavaScript expression on the open page and await its value."""
        answer = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, address: str, width: int, *, dark: bool = False) -> list[str]:
        """Open a page in a window of a given width in pixels; return its faults in words."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = "dark" if dark else "light"
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.ask("Emulation.setEmulatedMedia", features=[feature])
        self.events.clear()
        self.ask("Page.navigate", url=address)
        self.wait("Page.loadEventFired")
        faults = self.evaluate(INSPECT)
        return [fault for event in self.events if (fault := _complaint(event))] + faults

    def screenshot(self, file: Path) -> None:
        """The whole open page as a PNG."""
        picture = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(picture["data"]))


def _complaint(event: dict[str, Any]) -> str:
    """Return the complaint in an event of the browser, empty for a harmless event."""
    method, params = event.get("method"), event.get("params", {})
    if method == "Runtime.exceptionThrown":
        return f"console error: {params['exceptionDetails']['text']}"
    if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
        return f"console {params['type']}: {params['args']}"
    if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
        return f"console {params['entry']['level']}: {params['entry']['text']}"
    if method == "Network.loadingFailed":
        return f"not loaded: {params['errorText']}"
    if method == "Network.requestWillBeSent":
        address = params["request"]["url"]
        if not address.startswith(("file:", "data:", "about:")):
            return f"asks the network: {address}"
    return ""


def faults_of(browser: Browser, page: str, file: Path) -> list[str]:
    """Return the faults of a page on a desktop and on a phone, and in dark mode."""
    file.write_text(page, encoding="utf-8")
    found = []
    for width, dark in ((1280, False), (390, True)):
        found += [f"{width}: {fault}" for fault in browser.open(file.as_uri(), width, dark=dark)]
    return found


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Start a headless Chromium for a while."""
    to_browser, requests = os.pipe()
    answers, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The protocol's descriptors are 3 and 4; bash puts the pipes there.
        start = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        process = subprocess.Popen(
            [
                "bash", "-c", start, "bash", FOUND, "--headless=new", "--remote-debugging-pipe",
                "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking", "--hide-scrollbars",
                f"--user-data-dir={profile}", "about:blank",
            ],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        with os.fdopen(requests, "wb") as out, os.fdopen(answers, "rb") as back:
            try:
                yield _attached(Browser(out, back, [], itertools.count(1)))
            finally:
                process.terminate()
                process.wait()


def _attached(browser: Browser) -> Browser:
    """The browser with a session of its first tab, whose complaints it reports."""
    page = next(
        target
        for target in browser.ask("Target.getTargets")["targetInfos"]
        if target["type"] == "page"
    )
    answer = browser.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)
    tab = replace(browser, session=answer["sessionId"])
    for domain in ("Page", "Runtime", "Log", "Network"):
        tab.ask(f"{domain}.enable")
    return tab
