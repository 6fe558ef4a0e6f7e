#!/usr/bin/env python3
"""Checks that every function of moed.h has a manual page whose synopsis is its declaration, that the pages refer to pages that exist,
and that libmoed.map exports these functions and no others. usage: man_functions.py ROOT"""
import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
man = root / "docs" / "man"
failures = []


def declarations():
    text = re.sub(r"/\*.*?\*/", "", (root / "client/include/moed.h").read_text(), flags=re.S)
    for m in re.finditer(r"MOED_API(?: MOED_MUST_USE)?\s+([^;()]*?)\b(moed_\w+)\(([^;]*?)\);", text, flags=re.S):
        result, name, arguments = (" ".join(part.split()) for part in m.groups())
        yield name, (result, arguments)


def synopses(page):
    for m in re.finditer(r"^\.Ft (.*)\n\.Fo (\w+)\n((?:\.Fa \".*\"\n)*)\.Fc$", page, flags=re.M):
        arguments = re.findall(r'^\.Fa "(.*)"$', m.group(3), flags=re.M)
        yield m.group(2), (m.group(1), ", ".join(arguments))


declared = dict(declarations())
if len(declared) < 20:
    failures.append(f"only {len(declared)} functions were found in moed.h: this test no longer reads it")
described, names = {}, set()
for path in sorted(man.glob("moed_*.3")):
    page = path.read_text()
    here = dict(synopses(page))
    own = re.findall(r"^\.Nm (moed_\w+)", page, flags=re.M)
    if own != list(here):
        failures.append(f"{path.name}: NAME has {own}, SYNOPSIS {list(here)}")
    if own and own[0] != path.stem:
        failures.append(f"{path.name}: its first function is {own[0]}")
    described.update(here)
for name in sorted(declared.keys() | described.keys()):
    if declared.get(name) != described.get(name):
        failures.append(f"{name}: moed.h has {declared.get(name)}, its page {described.get(name)}")
names = described.keys() | {path.stem for path in man.glob("*.[138]")}
for path in man.glob("*.[138]"):
    for name in re.findall(r"^\.Xr (moed\S*|libmoed) [138]", path.read_text(), flags=re.M):
        if name not in names:
            failures.append(f"{path.name} refers to {name}, which has no page")
exported = set(re.findall(r"^\s+(moed_\w+);", (root / "client/libmoed.map").read_text(), flags=re.M))
if exported != declared.keys():
    failures.append(f"libmoed.map and moed.h differ: {sorted(exported ^ declared.keys())}")
if failures:
    sys.exit("\n".join(failures))
print("ok")
