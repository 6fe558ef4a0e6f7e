#!/usr/bin/env python3
"""The tables of docs/architecture.md with a column "may use" say the same as the table of layers (layers.txt), for each
folder of it. In that column stand folders, separated by commas: in full, or without the part that they share with the
row's own folder, or without `lib/`. `lib/` alone stands for every folder of lib, "libmoed" for client/include. Words
behind a semicolon or in brackets are not compared.
usage: layers_page.py ROOT [TABLE]"""
import pathlib
import re
import sys

PLAIN = {"nothing": None, "lib/": "lib/...", "libmoed": "client/include"}


def layers(path):
    table = {}
    for line in path.read_text().splitlines():
        folder, colon, may = line.partition("#")[0].partition(":")
        if colon:
            table[folder.strip()] = set(may.split())
    return table


def allowed(cell, folder, table):
    """The folders of a cell "may use" of the row of `folder`."""
    found = set()
    for word in re.sub(r"\([^)]*\)", "", cell).partition(";")[0].split(","):
        word = word.strip(" `")
        if word in PLAIN:
            found.add(PLAIN[word])
            continue
        outer = folder
        candidates = [word]
        while outer:
            candidates.append(f"{outer}/{word}")
            outer = outer.rpartition("/")[0]
        candidates.append(f"lib/{word}")
        found.add(next((c for c in candidates if c in table or c == "proto"), f"{word} (no folder of the layers)"))
    return found - {None}


def rows(text):
    """Of each row of a table with "may use": its folders and that cell."""
    column = None
    for line in text.splitlines():
        if not line.startswith("|"):
            column = None
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if column is None:
            column = cells.index("may use") if "may use" in cells else -1
        elif column >= 0 and not cells[0].startswith("--"):
            for folder in re.findall(r"`([^`]+)`", cells[0]):
                yield folder.rpartition("/")[0] if re.search(r"\.\w+$", folder) else folder, cells[column]


def main():
    root = pathlib.Path(sys.argv[1])
    name = sys.argv[2] if len(sys.argv) > 2 else root / "tests/source/layers.txt"
    table, seen, bad = layers(pathlib.Path(name)), set(), []
    for folder, cell in rows((root / "docs/architecture.md").read_text()):
        if folder not in table:
            continue
        seen.add(folder)
        said = allowed(cell, folder, table)
        bad += [f"{folder}: the page lacks {x}" for x in sorted(table[folder] - said)]
        bad += [f"{folder}: the page has {x}, the layers not" for x in sorted(said - table[folder])]
    bad += [f"{folder}: no row of the page" for folder in sorted(set(table) - seen)]
    for line in bad:
        print(line)
    print(f"{len(seen)} folders, {len(bad)} differences between docs/architecture.md and {name}")
    return bool(bad) or len(seen) < 20


if __name__ == "__main__":
    sys.exit(main())
