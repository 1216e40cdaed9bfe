"""Check that a built site loads nothing from elsewhere: python offline.py build/site. Links to follow are no loads."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

LOADS = {
    "script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src", "embed": "src",
    "object": "data",
}  # fmt: skip
HARMLESS = {"canonical", "next", "prev", "alternate"}
"""Relations of a <link> that no browser loads."""
STYLE = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])(https?:)?//")


def is_remote(address: str) -> bool:
    """
    >>> is_remote("https://example.org/a.js"), is_remote("//cdn/a.js"), is_remote("../assets/a.js")
    (True, True, False)
    """
    return address.startswith(("http://", "https://", "//"))


class Loads(HTMLParser):
    """Collects what a page loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.remote: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        address = given.get(LOADS.get(tag, ""), "")
        if tag == "link" and not set(given.get("rel", "").split()) & HARMLESS:
            address = given.get("href", "")
        if is_remote(address):
            self.remote.append(f"<{tag}> {address}")
        if STYLE.search(given.get("style", "")):
            self.remote.append(f"style of <{tag}>")


def remote_loads(site: Path) -> Iterator[str]:
    """What the pages and styles of a site load from elsewhere, each with its file."""
    for page in sorted(site.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        found = Loads()
        found.feed(text)
        yield from (f"{page.relative_to(site)}: {what}" for what in found.remote)
        if 'class="mermaid"' in text:
            yield f"{page.relative_to(site)}: a mermaid diagram, whose script is loaded from elsewhere"
    for style in sorted(site.rglob("*.css")):
        if STYLE.search(style.read_text(encoding="utf-8")):
            yield f"{style.relative_to(site)}: url() or @import"


if __name__ == "__main__":
    wrong = list(remote_loads(Path(sys.argv[1])))
    if wrong:
        sys.exit("the site loads from elsewhere:\n" + "\n".join(wrong))
