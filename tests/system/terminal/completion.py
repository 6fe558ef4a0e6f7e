"""Completion for fish and zsh: what --help lists. usage: completion.py FOLDER_OF_MOED FOLDER_OF_BENCH SOURCES FOLDER"""
import os
import re
import shutil
import subprocess
import sys

from screen import Screen

client, bench, sources, folder = sys.argv[1:5]
environment = {**os.environ, "PATH": f"{client}:{bench}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": folder, "HOME": folder, "LC_ALL": "C.UTF-8"}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, env=environment, cwd=folder).stdout.decode()


def options(*command):
    """The first word of a help's line, where it is an option; the long one, where there are two."""
    words = [line.split() for line in output(*command, "--help").split("\n") if re.match(" +-", line)]
    return {(w[1] if w[0].endswith(",") else w[0]) for w in words}


verbs = re.findall(r"^  ([a-z]+) ", output("moed", "--help"), re.M)
programs = [["moed", verb] for verb in verbs] + [[p] for p in ("moed-bench", "moed-replay") if os.path.exists(os.path.join(bench, p))]


def fish(*lines):
    """The replies for each command line."""
    script = f"source {sources}/deploy/moed.fish\n" + "".join(f"complete -C '{line}'\necho ---\n" for line in lines)
    return [[x.split("\t")[0] for x in part.split("\n") if x] for part in output("fish", "--no-config", "-c", script).split("---\n")[:-1]]


def zsh(*lines):
    """What the function would give to zsh's own."""
    script = "compdef() {}\n_files() { print -r FILES }\n_describe() { local last=${@[-1]}; print -rl -- ${(P)last} }\n"
    for line in lines:
        words = " ".join(f"'{w}'" for w in line.split(" "))
        script += f"words=({words})\nCURRENT=$#words\n. {sources}/deploy/moed.zsh\nprint -- ---\n"
    return [[x.split(":")[0] for x in part.split("\n") if x] for part in output("zsh", "-f", "-c", script).split("---\n")[:-1]]


def what_help_lists(complete):
    got = complete(*(" ".join(p) + " -" for p in programs))
    for program, replies in zip(programs, got, strict=True):
        assert set(replies) == options(*program), (complete.__name__, program, set(replies) ^ options(*program))
    commands, helped, processes, named, down, model = complete("moed ", "moed help ", "moed logs ", "moed run --name ", "moed down ", "moed up ")
    assert {*verbs, "help"} <= set(commands) and {*verbs} <= set(helped), (commands, helped)
    assert {"memd", "worker-2", "http", "supervise"} <= set(processes), processes
    assert named == down == ["one", "two"], (named, down)
    assert "demo" in model, model


def zsh_at_a_terminal():
    functions = os.path.join(folder, "functions")
    os.makedirs(functions)
    shutil.copy(f"{sources}/deploy/moed.zsh", os.path.join(functions, "_moed"))
    s = Screen(["zsh", "-f", "-i"], PS1="@ ", PATH=environment["PATH"], XDG_RUNTIME_DIR=folder, HOME=folder)
    s.see("@")
    s.send(f"fpath=({functions} $fpath); autoload -Uz compinit; compinit -u -D; print loa''ded\r")
    s.see("loaded\n@")
    s.send("moed up --repro\t")
    s.see("moed up --reproducible")
    s.send("\x15moed down tw\t")
    s.see("moed down two")
    s.send("\x15exit\r")
    assert s.end() == 0


for name in ("one", "two"):
    os.makedirs(os.path.join(folder, "moed", name))
missing = True
for shell in (fish, zsh):
    if shutil.which(shell.__name__):
        print(shell.__name__, flush=True)
        what_help_lists(shell)
        missing = False
if shutil.which("zsh"):
    zsh_at_a_terminal()
sys.exit(77 if missing else 0)
