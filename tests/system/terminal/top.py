"""`moed top` at a pseudo-terminal. usage: top.py MOED FIRST SECOND THIRD: deployments that run, the second with a device, the third with --ram."""
import json
import os
import re
import subprocess
import sys

from screen import Screen
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
from stop_process import stop_process  # pylint: disable=wrong-import-position

moed, first, second, third = sys.argv[1:5]


def output(*arguments, **environment):
    return subprocess.run([moed, *arguments], check=True, capture_output=True, env={**os.environ, **environment}).stdout.decode()


def fails(*arguments):
    done = subprocess.run([moed, *arguments], check=False, capture_output=True)
    return done.returncode, done.stderr.decode()


def once(name):
    return json.loads(output("top", "--once", "--json", "--name", name))


def metric(name, process, metric_name):
    found = re.findall(rf"^{metric_name}(?:\{{.*\}})? ([0-9.e+-]+)$", output("metrics", "--name", name, process), re.M)
    return sum(float(x) for x in found)


def policy_resident():
    return json.loads(output("policy", "--json", "--name", second))["resident"]


def rows(screen):
    """The table of processes: name to the other columns."""
    lines = screen.lines()
    start = next(i for i, line in enumerate(lines) if line.startswith("PROCESS"))
    return {line.split()[0]: line.split()[1:] for line in lines[start + 1:-1] if line}


class Top(Screen):
    def __init__(self, *arguments, **more):
        super().__init__([moed, "top", *arguments], **more)
        self.see("? help")

    def quit(self):
        self.send("q")
        assert self.end() == 0


def the_figures_are_those_of_ps_and_metrics():
    output("run", "--name", second, "--ignore-end", "-n", "30", "--temp", "0", "Once upon a time")
    got = once(second)
    listed = {p["process"]: p for p in json.loads(output("ps", "--json", "--name", second)) if p["process"] != "supervise"}
    assert {p["process"]: p["pid"] for p in got["processes"]} == {n: p["pid"] for n, p in listed.items()}, (got, listed)
    assert {p["process"] for p in got["processes"]} == {"memd", "cpuexec", "worker"}
    assert all(p["state"] == "ready" and p["restarts"] == 0 and p["memory_bytes"] > 1e6 for p in got["processes"]), got
    assert got["generated_tokens"] == listed["worker"]["tokens_total"] == 30, got
    assert got["prompt_tokens"] == metric(second, "worker", "moed_worker_prompt_tokens_total"), got
    assert got["requests_ended"] == metric(second, "worker", "moed_worker_requests_total") == 1, got
    kv = metric(second, "memd", "moed_memd_kv_bytes")
    assert abs(got["kv_used_bytes"] + got["kv_free_bytes"] - kv) < 1e-6 * kv, got
    resident = None
    while resident != (resident := policy_resident()):  # copies may be under way
        shown = once(second)
    segments = sum(int(e) * int(s) for e, s in re.findall(r"\((\d+) experts of (\d+) segment", output("map", "--name", second)))
    assert abs(shown["experts_on_device_share"] - resident / segments) < 1e-6, (shown, resident, segments)
    memory = listed["memd"]["device_memory"]
    for part in ("dense", "expert", "kv", "scratch"):
        assert got[f"device_{part}_bytes"] == memory[f"{part}_bytes"], (got, memory)
    assert got["experts_in_memory_share"] == 1 and got["experts_in_file_only_share"] == 0
    plain = once(first)
    assert "experts_on_device_share" not in plain and "link_busy_share" not in plain, plain
    again = output("run", "--name", first, "-n", "2", "Once upon a time, there was a cat.")
    output("run", "--name", first, "-n", "2", "Once upon a time, there was a cat.")
    assert again and once(first)["cached_prompt_tokens"] == metric(first, "worker", "moed_worker_cached_prompt_tokens_total") > 0
    text = output("top", "--once", "--name", second, LC_ALL="C")
    assert re.search(r"^device memory +[0-9.]+ .B experts", text, re.M), text
    assert text.isascii() and "on device" in text and all(len(line) <= 80 for line in text.split("\n")), text
    assert "\u2588" in output("top", "--once", "--name", second, LC_ALL="C.UTF-8")


def experts_in_the_file_only():
    output("run", "--name", third, "--ignore-end", "-n", "30", "Once upon a time")
    ps = {p["process"]: p for p in json.loads(output("ps", "--json", "--name", third))}
    if ps["worker"].get("tier", {}).get("hit_rate") is not None:  # else the last seconds had no step
        text, figures = output("top", "--once", "--name", third), once(third)
        assert 0 < figures["memory_hit_rate"] <= 1 and 0 <= figures["decode_disk_wait_share"] < 1, figures
        assert figures["disk_bytes_per_s"] >= 0 and "memory hits" in text and "of decode time" in text, (figures, text)
    got = once(third)
    memd = next(p for p in json.loads(output("ps", "--json", "--name", third)) if p["process"] == "memd")
    tier = memd["tier"]
    assert 0 < tier["in_memory"] < tier["experts"] == got["experts"], (tier, got)
    assert abs(got["experts_in_memory_share"] - tier["in_memory"] / tier["experts"]) < 1e-6, (tier, got)
    assert abs(got["experts_in_file_only_share"] + got["experts_in_memory_share"] - 1) < 1e-6, got
    assert "in file only" in output("top", "--once", "--name", third)


def a_terminal_of_80_by_24():
    t = Top("--name", second)
    listed = {p["process"]: p for p in json.loads(output("ps", "--json", "--name", second))}
    shown = rows(t)
    assert list(shown) == ["memd", "cpuexec", "worker"], shown
    assert all(shown[n][:2] == [str(listed[n]["pid"]), "ready"] and shown[n][3] == "0" for n in shown), shown
    lines = t.lines()
    assert lines[0].startswith(f"moed top: {second} (moed demo), ready") and lines[23].startswith("q quit"), t.text()
    assert lines[1] == "requests      0 running, 0 waiting, 1 ended; 0 clients", t.text()
    share = once(second)["experts_on_device_share"]
    bar = next(line for line in lines if line.startswith("on device"))
    inside, after = bar.partition("[")[2].split("]")
    assert float(after.split()[0]) == round(100 * share, 1), bar
    full = sum(c == "\u2588" for c in inside)
    assert len(inside) == 33 and abs(full - share * 33) <= 1, bar
    # a client that does not read holds its request up
    running = subprocess.Popen([moed, "run", "--name", second, "--ignore-end", "-n", "0", "x"], stdout=subprocess.PIPE)
    running.stdout.read(1)
    stop_process(running.pid)
    t.see("1 running")
    running.kill()
    running.wait()
    t.see("0 running")
    t.quit()


def keys():
    t = Top("--name", second)
    t.send("s")
    t.see("s sort: memory")
    amounts = [float(r[4]) * {"kB": 1e3, "MB": 1e6, "GB": 1e9}[r[5]] for r in rows(t).values()]
    assert amounts == sorted(amounts, reverse=True), rows(t)
    t.send("sss")
    t.see("s sort: name")
    assert list(rows(t)) == ["cpuexec", "memd", "worker"], rows(t)
    t.send("+")
    t.see("every 0.5 s")
    t.send("p")
    t.see("PAUSED")
    t.see("p go on")
    t.send("p?")
    t.see("quit")
    t.wait(lambda s: "PAUSED" not in s.text() and "the next deployment" in s.text(), "the help")
    t.send("?2")
    t.see("PROCESS")
    names = set()
    for n in "12":
        t.send(n)
        t.wait(lambda s, n=n: f", {n} of " in s.lines()[0] and "PROCESS" in s.text(), "deployment " + n)
        names.add(t.lines()[0].split()[2])
    assert names == {first, second}, names
    t.send("D")
    t.see(", 1 of ")
    t.send("\t")
    t.see(", 2 of ")
    t.child.sendintr()
    assert t.end() == 0
    assert b"\x1b[?25h" in t.raw[-200:], t.raw[-200:]  # the cursor is shown again


def other_sizes():
    t = Top("--name", second)
    for columns, lines in ((120, 40), (50, 12), (20, 5), (80, 24)):
        t.resize(columns, lines)
        t.wait(lambda s: s.lines()[-1].startswith("q quit") and s.lines()[0].startswith(f"moed top: {second[:10]}"),
               f"the keys in the last line of {columns}x{lines}")
        shown = [i for i, line in enumerate(t.lines()) if line.startswith("q quit")]
        assert shown == [len(t.lines()) - 1], t.text()
    t.quit()


def what_dies():
    t = Top("--name", first, "--interval", "0.25")
    before = rows(t)["worker"][0]
    os.kill(int(before), 9)
    t.wait(lambda s: "PROCESS" in s.text() and rows(s).get("worker", [""] * 4)[1:4:2] == ["ready", "1"], "the worker, restarted")
    assert rows(t)["worker"][0] != before
    plain = Top("--name", first, "--interval", "0.25", NO_COLOR="1")
    output("down", first)
    for s in (t, plain):
        s.see("not running")
        s.quit()
    red = b"\x1b[31m"
    assert red in t.raw and red not in plain.raw, plain.raw


def without_a_terminal():
    code, text = fails("top", "--name", second)
    assert code == 1 and "--once" in text, text
    assert fails("top", "--json")[0] == 2
    code, text = fails("top", "--once")
    assert code == 2 and first in text and second in text, text
    assert fails("top", "--name", "nobody")[0] == 3
    t = Screen([moed, "top", "--name", second], TERM="nothing")
    assert t.end() == 1 and "is not known" in t.text(), t.text()


for test in (the_figures_are_those_of_ps_and_metrics, without_a_terminal, experts_in_the_file_only, a_terminal_of_80_by_24, keys, other_sizes, what_dies):
    print(test.__name__, flush=True)
    test()
