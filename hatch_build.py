"""What an index page shows: the README, whose links lead to the files of a public repository.

Its address is the variable STANCT_URL, as in https://github.com/you/stanct, while the packages are
built. Without one, links of files are plain text, because an index page has no files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)]*)\)")


def for_an_index(text: str, url: str, tag: str) -> str:
    """The README with links that work anywhere: those of `url` at `tag`, or none without a URL."""

    def link(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if not url:
            return "" if picture else words
        return f"{picture}[{words}]({url}/{'raw' if picture else 'blob'}/{tag}/{path})"

    return LINK.sub(link, text)


class Readme(MetadataHookInterface):
    """Gives the packages their description and addresses."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add `readme`, and `urls` if there is one."""
        url = os.environ.get("STANCT_URL", "").rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        version = re.search(
            r'"(.*)"', Path(self.root, "stanct/common/version.py").read_text().partition("=")[2]
        )
        assert version is not None
        text = for_an_index(text, url, f"v{version[1]}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        if url:
            changes = f"{url}/blob/v{version[1]}/CHANGELOG.md"
            metadata["urls"] = {"Source": url, "Changes": changes}
