"""`moed chat` at a pseudo-terminal. usage: chat.py MOED FOLDER [edit]; a deployment of the demo model runs."""
import json
import os
import signal
import subprocess
import sys
import termios
import time

from screen import Screen
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
from stop_process import stop_process  # pylint: disable=wrong-import-position

moed, folder = sys.argv[1:3]
EDITS = sys.argv[3:] == ["edit"]  # built with libedit
PROMPT = ">>>"


def at_prompt(s):
    return s.lines()[s.screen.cursor.y] == PROMPT


class Chat(Screen):
    def __init__(self, *arguments, **environment):
        super().__init__([moed, "chat", "--temp", "0", *arguments], **environment)
        self.wait(at_prompt, "the first prompt")

    def line(self, text):
        """Sends a line, waits for the next prompt; what came in between."""
        before = self.raw.count(PROMPT.encode())
        start = len(self.raw)
        self.send(text + "\r")
        self.wait(lambda s: s.raw.count(PROMPT.encode()) > before and at_prompt(s), f"the prompt after {text!r}")
        text = self.raw[start:].decode(errors="replace")
        return text.replace("\r", "").replace("\x1b[?2004l", "").replace("\x1b[?2004h", "")

    def saved(self):
        path = os.path.join(folder, "saved.json")
        assert "saved" in self.line("/save " + path)
        with open(path, encoding="utf-8") as f:
            return [(m["role"], m["content"]) for m in json.load(f)]

    def bye(self):
        self.send("/bye\r")
        status = self.end()
        assert status == 0, (status, self.all_text())


def run(*arguments):
    """The answer of `moed run --chat`."""
    return subprocess.run([moed, "run", "--chat", "--temp", "0", *arguments], check=True, capture_output=True).stdout.decode()


def file(name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def turns_are_those_of_run():
    c = Chat("-n", "60")
    c.line("What can you do?")
    c.line("What is 2 + 3?")
    got = c.saved()
    assert [role for role, _ in got] == ["user", "assistant"] * 2, got
    assert got[1][1] == run("-n", "60", "What can you do?"), got
    earlier = file("earlier.json", json.dumps([{"role": r, "content": t} for r, t in got[:2]]))
    assert got[3][1] == run("-n", "60", "--messages", earlier, "What is 2 + 3?"), got
    assert got[3][1] in c.all_text()
    c.line("/set figures on")
    figures = c.line("And 4 + 4?")
    cached = int(figures.split(" cached")[0].split()[-1])
    assert cached > 30, figures  # the earlier turns; the first alone are more
    c.bye()


def commands():
    c = Chat("-n", "20", "--system", "Be brief.")
    assert "Be brief." in c.line("/system")
    c.line("Hello")
    first = c.saved()
    assert first[0] == ("system", "Be brief.") and len(first) == 3, first
    c.line("/regen")
    assert c.saved() == first  # temperature 0
    c.line('/system ""')
    assert c.saved() == first[1:]
    c.line("/clear")
    assert c.saved() == []
    assert "no question" in c.line("/regen")
    notes = file("notes.txt", "Zwölf Bären.\n")
    assert "next message" in c.line("/read " + notes)
    c.send('"""How many\r')
    c.see("...")
    c.line('are they?"""')
    assert c.saved()[0] == ("user", "Zwölf Bären.\n\nHow many\nare they?"), c.saved()
    c.line("/load " + file("one.json", '{"messages": [{"role": "user", "content": "x"}]}'))
    assert c.saved() == [("user", "x")]
    c.line(" /not a command")
    assert c.saved()[1] == ("user", "/not a command"), c.saved()
    assert "has no list" in c.line("/load " + file("no.json", "{}")) and len(c.saved()) == 3
    assert "holds no messages" in c.line("/save " + notes)
    with open(notes, encoding="utf-8") as f:
        assert f.read() == "Zwölf Bären.\n"
    assert "did you mean /regen?" in c.line("/regne")
    assert "in memory" in c.line("/experts") and "256 experts" in c.all_text()
    assert "temp: warm is not a number" in c.line("/set temp warm")
    assert "no setting warmth" in c.line("/set warmth 1")
    c.line("/set order kt")
    for letters in ("xyz", "kk", "k0"):
        assert "order has the letter" in c.line("/set order " + letters)
    assert ["order", "kt"] in [x.split() for x in c.line("/set").split("\n")]
    c.line("/set order default")
    assert "expected 2 or 0" in c.line("/set mirostat 1")
    c.line("/set top-k 7"), c.line("/set n 3")
    listed = c.line("/set")
    assert [x.split() for x in listed.split("\n") if x.startswith("  ")] == \
        [["thinking", "fold"], ["figures", "off"], ["n", "3"], ["temp", "0"], ["top-k", "7"]], listed
    assert "(3 tokens" in c.line("Tell me a story about a small cat.")
    assert all("/" + name in c.line("/?") for name in ("set", "save", "bye"))
    c.bye()


def longer_than_the_context():
    turns = [{"role": role, "content": "word " * 10000} for role in ("user", "assistant")]
    c = Chat("-n", "4")
    c.line("/load " + file("long.json", json.dumps(turns)))
    text = c.line("And now?")
    assert "maximum context length is 16384 tokens" in text and "/drop N forgets the oldest" in text, text
    assert "expected /drop N" in c.line("/drop all")
    assert "1 turn forgotten, 0 left" in c.line("/drop 1")
    c.line("And now?"), c.line("And then?")
    assert [r for r, _ in c.saved()] == ["user", "assistant"] * 2, c.saved()
    assert "1 turn left" in c.line("/undo")
    assert c.saved()[0] == ("user", "And now?") and len(c.saved()) == 2, c.saved()
    c.bye()


def editing_and_history():
    c = Chat("-n", "4", XDG_STATE_HOME=folder)
    c.line("Helo\x1b[Dl\x01\x1b[C")  # left, l, start of the line, right
    c.line("\x1b[A!")  # the line before, with more
    assert [t for r, t in c.saved() if r == "user"] == ["Hello", "Hello!"], c.saved()
    c.bye()
    again = Chat("-n", "4", XDG_STATE_HOME=folder)
    again.line("\x1b[A\x1b[A\x1b[A")  # /bye, /save, Hello!
    again.line("\x12lo!")  # Ctrl-R finds it
    assert [t for r, t in again.saved() if r == "user"] == ["Hello!"] * 2, again.saved()
    again.bye()
    d = Chat("-n", "4", LC_ALL="C", XDG_STATE_HOME=folder)
    d.send("Zw\u00f6lf")
    d.see("Zw\u00f6lf")
    d.resize(40, 10)
    d.line("e B\u00e4r\x7f\x7fren")
    assert d.saved()[0] == ("user", "Zw\u00f6lfe Bren"), d.saved()
    d.bye()
    assert os.stat(os.path.join(folder, "moed/chat_history")).st_mode & 0o77 == 0


PASTES = 2004 << 5  # pyte's number of the mode


def pasted(text):
    """As a terminal sends it."""
    return "\x1b[200~" + text.replace("\n", "\r") + "\x1b[201~"


def pastes():
    c = Chat("-n", "4", "--no-history")
    assert PASTES in c.screen.mode
    c.send(pasted("def f(x):\n\tif x:\n\t\tretu\x07\x1b[Arn '\u00e4\u0085'\n"))
    c.see("'\u00e4'")
    c.line(" # end")
    assert c.saved()[0] == ("user", "def f(x):\n\tif x:\n\t\tretu[Arn '\u00e4'\n # end"), c.saved()
    c.line("/clear")
    c.line("a" + pasted("b\nc") + "d" + pasted("") + pasted("\te"))
    assert c.saved()[0] == ("user", "ab\ncd\te"), c.saved()
    c.line("/clear")
    c.line("\x1b[A\x1b[A\x1b[A")  # /clear, /save, the pasted lines
    assert c.saved()[0] == ("user", "ab\ncd\te"), c.saved()
    c.line("/clear")
    c.line(pasted("/* of C */\n// 2\n\n"))
    assert c.saved()[0] == ("user", "/* of C */\n// 2"), c.saved()
    c.line("/system " + pasted("Be\nbrief."))
    assert c.saved()[0] == ("system", "Be\nbrief."), c.saved()
    c.line('/system ""'), c.line("/clear")
    python = '"""What it does."""\ndef f():\n    """More."""\n    pass'
    c.line(pasted(python))
    assert c.saved()[0] == ("user", python), c.saved()
    c.line("/clear")
    c.send('"""Look:\r')
    c.see("...")
    c.send(pasted("/read\tx\n" + python) + "\r")
    c.wait(lambda s: s.lines()[s.screen.cursor.y] == "...", "the rest of the block")
    c.line('/read\t/et\t"""')
    assert c.saved()[0] == ("user", "Look:\n/read\tx\n" + python + "\n/read\t/et\t"), c.saved()
    c.line("/clear")
    long = "\n".join(f"line {i}" for i in range(400))
    c.line(pasted(long))
    assert c.saved()[0] == ("user", long), c.saved()
    c.send(pasted("dropped\nby"))
    c.see("by")
    c.child.sendintr()
    c.see("Ctrl-C again")
    c.wait(at_prompt, "the prompt after Ctrl-C")
    c.line("")
    c.saved()
    c.send("\x1b[200~without an end")
    c.child.sendintr()
    c.wait(lambda s: s.text().count("Ctrl-C again") == 2, "the second notice")
    c.send("/bye\r")
    assert c.end() == 0 and PASTES not in c.screen.mode
    d = Chat("--regex", "[a-z]+\\x01")
    d.send("Go on\r")
    d.wait(lambda s: len(s.text().partition("Go on\n")[2]) > 20, "the start of an answer")
    assert PASTES not in d.screen.mode
    d.child.sendintr()
    d.wait(lambda s: PASTES in s.screen.mode, "the next line")
    d.child.kill(signal.SIGQUIT)
    assert d.end() is None and d.child.signalstatus == signal.SIGQUIT and PASTES not in d.screen.mode


def tabs_and_file_names():
    c = Chat("-n", "4", "--no-history")
    names = os.path.join(folder, "names")
    os.makedirs(os.path.join(names, "a folder"))
    for name in ("two words.txt", "two w\u00f6rds.txt", "it's $HOME.txt", ".hidden", "a folder/x", "new\nline"):
        with open(os.path.join(names, name), "w", encoding="utf-8") as f:
            f.write("x")
    c.line("a\tb " + names + "/two\t")
    assert c.saved()[0] == ("user", f"a\tb {names}/two\t"), c.saved()
    assert "1 bytes read" in c.line(f"/read {names}/it\t")
    assert "1 bytes read" in c.line(f"/read   {names}/a\tx")
    assert "1 bytes read" in c.line(f"/read {names}/two wo\t")
    c.send(f"/read {names}/t\t")
    c.see(f"{names}/two w")
    c.send("\t")
    c.see("two words.txt\ntwo w\u00f6rds.txt\n")
    assert "1 bytes read" in c.line("\u00f6\t")
    assert "saved" in c.line(f"/save {names}/two w.jso\tn")
    assert "loaded" in c.line(f"/load {names}/two w.\t")
    c.bye()


def two_histories():
    state = os.path.join(folder, "shared-state")
    path = os.path.join(state, "moed/chat_history")
    first, second = (Chat("-n", "4", XDG_STATE_HOME=state) for _ in range(2))
    first.line("one"), second.line("two"), first.line("three"), first.line("three"), second.line(pasted("four\n4"))
    first.bye(), second.bye()
    with open(path, encoding="utf-8") as f:
        assert [x.rstrip("\n").replace("\\012", "\n").replace("\\040", " ").strip() for x in f] == \
            ["_HiStOrY_V2_", "one", "two", "three", "four\n4", "/bye", "/bye"]
    with open(path, "a", encoding="utf-8") as f:
        f.writelines(f"line{i}\n" for i in range(600))
        f.write("cut")  # as on a full disk
    os.symlink(path, path + ".link")
    c = Chat("-n", "4", XDG_STATE_HOME=state)
    c.line("last")
    c.bye()
    with open(path, encoding="utf-8") as f:
        lines = f.read().split("\n")
    assert lines[0] == "_HiStOrY_V2_" and len(lines) <= 504 and "line599" in lines and "line0" not in lines, lines
    assert [x.split("\\")[0] for x in lines[-3:]] == ["last", "/bye", ""], lines[-5:]
    assert os.stat(path).st_mode & 0o77 == 0 and sorted(os.listdir(os.path.dirname(path))) == ["chat_history", "chat_history.link"]


def other_histories():
    """A file that libedit cannot read is kept; others may not read one that they could; one that cannot be written is read."""
    state = os.path.join(folder, "other-state")
    path = os.path.join(state, "moed/chat_history")
    os.makedirs(os.path.dirname(path))
    for text in ("of readline\nand more\n", "no line"):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o644)
        c = Chat("-n", "4", XDG_STATE_HOME=state)
        c.line("new")
        c.bye()
        with open(path + ".bad", encoding="utf-8") as f:
            assert f.read() == text
        with open(path, encoding="utf-8") as f:
            assert [x.replace("\\012", "").strip() for x in f] == ["_HiStOrY_V2_", "new", "/bye"]
        assert sorted(os.listdir(os.path.dirname(path))) == ["chat_history", "chat_history.bad"]
        assert [os.stat(p).st_mode & 0o77 for p in (path, path + ".bad")] == [0, 0]
    os.chmod(path, 0o644)
    Chat("-n", "4", XDG_STATE_HOME=state).bye()
    assert os.stat(path).st_mode & 0o777 == 0o600
    os.chmod(path, 0o444)
    before = os.stat(path).st_size
    c = Chat("-n", "4", XDG_STATE_HOME=state)
    c.line("\x1b[A\x1b[A\x1b[A")  # two times /bye, new
    assert c.saved()[0] == ("user", "new"), c.saved()
    c.bye()
    assert os.stat(path).st_mode & 0o77 == 0
    assert os.geteuid() == 0 or os.stat(path).st_size == before  # root may write it


def locales():
    """A locale that is not installed counts as none; bytes that are no character are shown."""
    c = Chat("-n", "4", "--no-history", LC_ALL="xx_YY.UTF-8")
    c.line("Zw\u00f6lf")
    assert c.saved()[0] == ("user", "Zw\u00f6lf"), c.saved()
    c.line("/clear")
    c.child.send(b"Zw\xf6lf \xc3!")
    c.line("")
    assert c.saved()[0] == ("user", "Zw\ufffdlf \ufffd!"), c.saved()
    c.bye()
    path = os.path.join(folder, "locales")
    os.makedirs(path)
    try:
        made = subprocess.run(["localedef", "-i", "de_DE", "-f", "ISO-8859-1", os.path.join(path, "de_DE")], check=False, capture_output=True)
    except FileNotFoundError:
        return
    if made.returncode != 0:  # without the sources of locales
        return
    d = Chat("-n", "4", "--no-history", LC_ALL="de_DE", LOCPATH=path)
    assert "ISO-8859-1; moed reads and writes UTF-8" in d.text(), d.text()
    d.line("Zw\u00f6lf")
    assert d.saved()[0] == ("user", "Zw\u00f6lf"), d.saved()
    d.bye()


def ended_by_a_signal():
    c = Chat("-n", "4", XDG_STATE_HOME=folder)
    c.line("Kept")
    c.send("Not ended")
    c.see(PROMPT + " Not ended")
    modes = termios.ICANON | termios.ECHO
    assert termios.tcgetattr(c.child.child_fd)[3] & modes == 0
    c.child.kill(signal.SIGTERM)
    c.wait(lambda s: termios.tcgetattr(s.child.child_fd)[3] & modes == modes, "the terminal as it was")
    assert c.end() is None and c.child.signalstatus == signal.SIGTERM
    again = Chat("-n", "4", XDG_STATE_HOME=folder)
    again.send("\x1b[A")
    again.see(PROMPT + " Kept")
    again.send("\x15")
    again.bye()


def a_shell_that_stops_it():
    s = Screen(["/bin/bash", "--norc", "-i"], PS1="@ ")
    s.see("@")
    s.send(f"{moed} chat --temp 0 -n 4 --no-history\r")
    s.see(PROMPT)
    s.send("Hel")
    s.see(PROMPT + " Hel")
    s.send("\x1a")
    s.see("Stopped")
    before = s.raw[:s.raw.rindex(b"Stopped")]  # the shell marks pastes for itself behind it
    assert before.rindex(b"\x1b[?2004l") > before.rindex(b"\x1b[?2004h")
    s.send("fg\r")
    s.wait(lambda s: s.lines()[s.screen.cursor.y] == PROMPT + " Hel", "the line again")
    assert PASTES in s.screen.mode
    s.send("lo\r")
    s.wait(at_prompt, "the prompt after the answer")
    assert PROMPT + " Hello\n" in s.text() and "\nlo" not in s.text(), s.text()
    s.send("/bye\r")
    s.wait(lambda s: s.lines()[s.screen.cursor.y] == "@", "the shell")
    s.send("exit\r")
    assert s.end() == 0


def interrupts():
    # the answer would go on until the context is full
    c = Chat("--regex", "[a-z]+\\x01")
    c.send("Go on\r")
    c.wait(lambda s: len(s.text().partition("Go on\n")[2]) > 20, "the start of an answer")
    c.child.sendintr()
    c.see("(stopped)")
    c.wait(at_prompt, "the prompt after Ctrl-C")
    got = c.saved()
    assert got[0] == ("user", "Go on") and 20 < len(got[1][1]), got
    c.send("half a line")
    c.child.sendintr()
    c.see("Ctrl-C again")
    c.wait(at_prompt, "the prompt after the notice")
    assert c.saved() == got
    c.child.sendintr()
    c.wait(lambda s: s.text().count("Ctrl-C again") == 2, "the second notice")
    c.child.sendintr()
    assert c.end() == 0
    d = Chat()
    d.send("\x04")
    assert d.end() == 0


def nothing_reaches_the_terminal():
    c = Chat("--regex", r"\x1b\[31mred\x07\x9b5n")
    c.line("x")
    assert "?[31mred?" in c.text(), c.text()
    assert b"\x1b[31m" not in c.raw and b"\x07" not in c.raw and b"\xc2\x9b" not in c.raw, c.raw
    assert c.saved()[1][1] == "\x1b[31mred\x07\x9b5n"
    name = file("bad.txt", "x")
    assert "did you mean" not in c.line("/\x16\x1b[31m" + name)
    assert b"\x1b[31m" not in c.raw.split(b"there is no command")[1]
    c.bye()


def run_shows_no_controls():
    """`moed run` on a terminal; --raw and a pipe get what the model wrote."""
    hostile = ["--temp", "0", "--regex", r"\x1b\[31mred\x07\x9b5n", "x"]
    written = "\x1b[31mred\x07\x9b5n".encode()
    for arguments in ([], ["--answers", "2"]):
        s = Screen([moed, "run", *arguments, *hostile])
        assert s.end() == 0 and "?[31mred?" in s.all_text(), s.all_text()
        assert b"\x1b[31m" not in s.raw and b"\x07" not in s.raw and b"\xc2\x9b" not in s.raw, s.raw
    raw = Screen([moed, "run", "--raw", *hostile])
    assert raw.end() == 0 and written in raw.raw, raw.raw
    assert written in subprocess.run([moed, "run", *hostile], check=True, capture_output=True).stdout


def thinking():
    template = file("template.jinja", "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
                                      "{% endfor %}<|im_start|>assistant\n{# <think></think> #}")
    thinks = ["--chat-template", template, "--regex", "<think>secret plan</think>Hello"]
    for view, errors in (("show", b"secret plan"), ("fold", b""), ("off", b"")):
        done = subprocess.run([moed, "chat", *thinks, "--thinking", view], input=b"x", capture_output=True, check=True)
        assert (done.stdout, done.stderr) == (b"Hello", errors), (view, done)
    c = Chat(*thinks, "--figures")
    folded = c.line("a")
    assert "(thought for " in folded and "secret" not in folded and "Hello" in c.text(), folded
    c.line("/set thinking show")
    shown = c.line("b")
    assert "(thinking)" in shown and "secret plan\n(end of thinking)\nHello" in shown, shown
    c.line("/set thinking off")
    off = c.line("c")
    assert "secret" not in off and "thought" not in off and "Hello" in off, off
    assert [t for r, t in c.saved() if r == "assistant"] == ["Hello"] * 3, c.saved()
    assert "expected show, fold or off" in c.line("/set thinking deep")
    c.bye()


def a_worker_that_dies():
    c = Chat("-n", "20")
    c.line("Hello")
    with open(os.path.join(os.environ["MOED_RUN"], "worker.pid"), encoding="ascii") as f:
        os.kill(int(f.read()), 9)
    c.line("What is 2 + 3?")
    got = c.saved()
    assert len(got) == 4 and got[3][1], got
    c.bye()


def interrupt(pid):
    """A Ctrl-C that the process has taken: those that come before are one with it."""
    os.kill(pid, signal.SIGINT)
    end = time.monotonic() + 90
    while True:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
            waiting = int(f.read().split("\nShdPnd:")[1].split()[0], 16)
        if not waiting >> (signal.SIGINT - 1) & 1:
            return
        assert time.monotonic() < end, "SIGINT is not taken"
        time.sleep(0.01)


def a_worker_that_hangs():
    c = Chat("-n", "20")
    c.line("Hello")
    with open(os.path.join(os.environ["MOED_RUN"], "worker.pid"), encoding="ascii") as f:
        worker = int(f.read())
    stop_process(worker)
    c.send("Hello?\r")
    c.wait(lambda s: "Hello?" in s.text() and not s.lines()[s.screen.cursor.y], "the end of the line")
    c.child.sendintr()
    c.see("(stopped)")
    c.wait(at_prompt, "the prompt while the worker hangs")
    c.send("What is 2 + 3?\r")
    c.wait(lambda s: "2 + 3?" in s.text() and not s.lines()[s.screen.cursor.y], "the end of the line")
    for _ in range(3):
        interrupt(c.child.pid)
    status = c.end()
    os.kill(worker, signal.SIGCONT)
    assert status == 130, status


def without_editing():
    c = Chat("-n", "10", TERM="dumb")
    c.line("Hello")
    assert c.saved()[0] == ("user", "Hello")
    c.send("/bye\n")
    assert c.end() == 0
    assert b"\x1b" not in c.raw


def pipes():
    asked = subprocess.run([moed, "chat", "--temp", "0", "-n", "40", "--figures"], input=b"What can you do?\n", capture_output=True, check=True)
    assert asked.stdout.decode() == run("-n", "40", "What can you do?"), asked
    assert b"first token after" in asked.stderr
    lines = subprocess.run([moed, "chat", "--temp", "0", "-n", "9"], input=b"one\ntwo\n", capture_output=True, check=True).stdout
    assert lines.decode() == run("-n", "9", "one\ntwo"), lines
    empty = subprocess.run([moed, "chat"], input=b"\n", capture_output=True, check=False)
    assert empty.returncode == 1 and b"no question" in empty.stderr, empty
    for verb in (["chat"], ["run", "-"], ["run", "--json", "-"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([moed, *verb, "-n", "4"], input=b"q", stdout=full, stderr=subprocess.PIPE, check=False)
        assert done.returncode == 1 and done.stderr == b"moed: cannot write to standard output: No space left on device\n", done
        pipe = os.pipe()
        os.close(pipe[0])
        done = subprocess.run([moed, *verb, "-n", "4"], input=b"q", stdout=pipe[1], stderr=subprocess.PIPE, check=False)
        os.close(pipe[1])
        assert done.returncode == -signal.SIGPIPE and not done.stderr, done
    missing = subprocess.run([moed, "chat", "--messages", "/none.json"], input=b"x", capture_output=True, check=False)
    assert missing.returncode == 1 and b"/none.json" in missing.stderr, missing
    missing = subprocess.run([moed, "run", "--chat", "--messages", "/nonexist", "x"], capture_output=True, check=False)
    assert missing.returncode != 0 and missing.stderr == b"moed: cannot read /nonexist: No such file or directory\n", missing


editing = (editing_and_history, pastes, tabs_and_file_names, two_histories, other_histories, locales, ended_by_a_signal, a_shell_that_stops_it)
for test in (turns_are_those_of_run, commands, longer_than_the_context, *editing, interrupts, nothing_reaches_the_terminal, run_shows_no_controls,
             thinking,
             a_worker_that_dies, a_worker_that_hangs, without_editing, pipes):
    if EDITS or test not in editing:
        print(test.__name__, flush=True)
        test()
