#!/usr/bin/env python3
"""The options that programs print with --help stand in their manual pages, and those of a deployment in
docs/operations.md: in a row of the table of options whose column "taken by" names the programs that have the option.
In that column "up" stands for `moed up` and `moed serve`, "commands" for all commands, which are not compared.
usage: options.py ROOT BINARY_DIR"""
import pathlib
import re
import subprocess
import sys

PROGRAMS = {"memd": "memd/moed-memd", "worker": "worker/moed-worker", "cpuexec": "cpuexec/moed-cpuexec",
            "supervise": "deploy/moed-supervise", "http": "client/moed-http", "models": "deploy/moed-models"}
OTHERS = {"moed-replay.1": "bench/moed-replay", "moed-bench.1": "bench/moed-bench"}
DEPLOYMENT = ("up", "supervise")
TOGETHER = {"daemons": set(PROGRAMS) - {"supervise"}, "all": {*PROGRAMS, "up"}, "commands": {"up"}}


def options(*command):
    """The options of a program's help."""
    text = subprocess.run([*map(str, command), "--help"], capture_output=True, text=True, timeout=60).stdout
    found = set(re.findall(r"^  (?:-\w, )?--([a-z][a-z-]*)", text, re.M)) - {"help"}
    if not found:
        sys.exit(f"options.py: {' '.join(map(str, command))} --help names no options")
    return found


def options_of_modes(program):
    """The same, with those of each `PROGRAM --MODE --help` that the help names, and of `PROGRAM --LIST` alone."""
    text = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60).stdout
    modes = set(re.findall(rf"{program.name} (--[a-z]+)", text.replace("\n", " ")))
    helps = [mode for mode in modes if f"{mode} --help" in text.replace("\n", " ")]
    return options(program).union({mode[2:] for mode in modes}, *(options(program, mode) for mode in helps))


def commands(moed):
    text = subprocess.run([moed, "--help"], capture_output=True, text=True, timeout=60).stdout
    found = re.findall(r"^  ([a-z]+) ", text, re.M)
    return [name for name in found if name != "mkmodel"]  # of which moed.1 says that its --help lists them


def wrong_in_page(page, wanted):
    text = page.read_text()
    described = set(re.findall(r"Fl -([a-z][a-z-]*)", text))
    described |= {name.removeprefix("no-") for name in described}
    bad = [f"{page.name} lacks --{name}" for name in sorted(wanted - described)]
    listed = set(re.findall(r"^\.(?:Op|It) Fl -([a-z][a-z-]*)", text, re.M)) - {"help", "version"}
    return bad + [f"{page.name} has --{name}, the program not" for name in sorted(listed)
                  if not wanted & {name, name.removeprefix("no-")}]


def table_rows(text):
    """Of each row of the table of options: the options of its first cell, of the whole row, and who takes them."""
    section = text.partition("\n## Options\n")[2].partition("\n## ")[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[0].startswith("`--"):
            yield (re.findall(r"`--([a-z-]+)", cells[0]), re.findall(r"`--([a-z-]+)", line),
                   {name.strip() for name in cells[2].split(",")})


def wrong_in_table(text, has):
    taken, named = {}, set()
    for first, all_named, takers in table_rows(text):
        named.update(all_named)
        for name in first:
            taken.setdefault(name, set()).update(takers)
    deployment = set.intersection(*(has[program] for program in DEPLOYMENT))
    bad = [f"operations.md lacks --{name}" for name in sorted(deployment - named)]
    for name, takers in sorted(taken.items()):
        really = {program for program in has if {name, name.removeprefix("no-")} & has[program]}
        if set().union(*(TOGETHER.get(taker, {taker}) for taker in takers)) != really:
            bad.append(f"operations.md: --{name} is taken by {', '.join(sorted(really))}")
    return bad


def refused_fractions(binaries):
    """What `moed up` takes as a number with a fraction its processes take too, or they would not start."""
    return [f"moed-{name} refuses --spin-us 0.5" for name in ("worker", "cpuexec")
            if subprocess.run([binaries / PROGRAMS[name], "--spin-us", "0.5", "--config-dump"], capture_output=True,
                              timeout=60).returncode]


def main():
    root, binaries = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    moed = binaries / "client/moed"
    has = {name: options(binaries / path) for name, path in PROGRAMS.items()}
    has["up"] = options(moed, "up")
    pages = {f"moed-{name}.8": has[name] for name in PROGRAMS}
    pages |= {page: options_of_modes(binaries / path) for page, path in OTHERS.items()}
    pages["moed.1"] = set().union(*(options(moed, command) for command in commands(moed)))
    bad = [line for page, wanted in pages.items() for line in wrong_in_page(root / "docs/man" / page, wanted)]
    bad += wrong_in_table((root / "docs/operations.md").read_text(), has)
    bad += refused_fractions(binaries)
    if has["up"] != options(moed, "serve"):
        bad.append("moed serve has other options than moed up")
    for line in bad:
        print(line)
    print(f"{sum(map(len, pages.values()))} options in {len(pages)} pages, {len(bad)} faults")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
