#!/usr/bin/env python3
"""Applies docs/adding-a-policy.md's example of adding a cache to a copy of lib/, and compiles what changed.
usage: policy_example.py ROOT CC"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def code_blocks(text):
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.M)
    lines = ["".join(re.sub("^    ", "", line) for line in b.splitlines(True)).strip("\n") + "\n" for b in blocks]
    return [b for b in lines if b.strip()]


def insert_before(path, anchor, text):
    old = path.read_text()
    assert old.count(anchor) == 1, f"{path}: {anchor!r} stands there {old.count(anchor)} times"
    path.write_text(old.replace(anchor, text + anchor))


def main(root, compiler):
    document = (root / "docs/adding-a-policy.md").read_text()
    kind, source, line, budgets, name = code_blocks(document[document.index("## Example: a cache"):])
    with tempfile.TemporaryDirectory() as folder:
        lib = pathlib.Path(folder) / "lib"
        shutil.copytree(root / "lib", lib)
        sched = lib / "sched"
        insert_before(sched / "cache/cache.h", "    CACHE_BELADY, /*", kind)
        (sched / "cache/cache_fifo.c").write_text(source)
        insert_before(sched / "cache/cache_internal.h", "    X(CACHE_BELADY", line.strip() + " \\\n")
        insert_before(sched / "cache/cache.c", "    case CACHE_LAYERWISE:\n    case CACHE_MAP", budgets)
        policy = sched / "policy.c"
        policy.write_text(policy.read_text().replace("          CACHE_VALUE)",
                                                     "          CACHE_VALUE) \\\n    " + name.strip(), 1))
        files = [sched / "cache/cache_fifo.c", sched / "cache/cache.c", policy]
        return subprocess.run([compiler, "-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
                               "-Wno-unused-parameter", "-fsyntax-only", f"-I{lib}", *files]).returncode


sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
