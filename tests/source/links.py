#!/usr/bin/env python3
"""Checks that each relative link of the Markdown files leads to a file, and its anchor to a heading there. usage: links.py ROOT"""
import functools
import re
import sys
from pathlib import Path

root = Path(sys.argv[1]).resolve()
failures, checked = [], 0


def prose(path):
    """The file's text without blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)


@functools.cache
def anchors(path):
    """Those that GitHub gives the headings: of equal ones the second has -1."""
    found = {}
    for heading in re.findall(r"^#+ +(.*?)\s*$", prose(path), flags=re.M):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found[anchor] = found.get(anchor, -1) + 1
    return {a if i == 0 else f"{a}-{i}" for a, n in found.items() for i in range(n + 1)}


pages = [p for p in root.rglob("*.md") if not any(part.startswith((".", "build")) for part in p.relative_to(root).parts)]
for page in pages:
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(page))):
        if re.match(r"[a-z]+:", link):
            continue
        checked += 1
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            failures.append(f"{page.relative_to(root)}: {link}: there is no such file")
        elif anchor and anchor not in anchors(target):
            failures.append(f"{page.relative_to(root)}: {link}: there is no such heading")
if checked < 500:
    failures.append(f"only {checked} links were found: this test no longer reads them")
if failures:
    sys.exit("\n".join(failures))
print(f"ok: {checked} links")
