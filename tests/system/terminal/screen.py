"""A program on a pseudo-terminal, and the screen that a person would see."""
import os
import time

import pexpect
import pyte

SECONDS = 90  # no assertion on speed: only how long a test waits before it fails


class Screen:
    # "linux": what pyte's terminal can do
    def __init__(self, command, columns=80, lines=24, **environment):
        self.raw = b""
        self.screen = pyte.HistoryScreen(columns, lines, history=2000)
        self.stream = pyte.ByteStream(self.screen)
        settings = {"TERM": "linux", "LC_ALL": "C.UTF-8", **environment}
        self.child = pexpect.spawn(command[0], command[1:], dimensions=(lines, columns),
                                   env={**os.environ, **settings}, timeout=SECONDS)

    def _read(self, seconds):
        """False: the program has ended."""
        try:
            data = self.child.read_nonblocking(65536, seconds)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += data
        self.stream.feed(data)
        return True

    def lines(self):
        """The lines of the screen."""
        return [line.rstrip() for line in self.screen.display]

    def text(self):
        return "\n".join(self.lines()).rstrip()

    def all_text(self):
        """With what has scrolled away."""
        top = ["".join(line[x].data for x in range(self.screen.columns)).rstrip() for line in self.screen.history.top]
        return "\n".join(top + self.lines()).rstrip()

    def wait(self, condition, what):
        """Reads until condition(self) is true."""
        end = time.monotonic() + SECONDS
        while not condition(self):
            alive = self._read(0.05)
            if condition(self):
                break
            assert alive, f"the program ended before: {what}\n{self.all_text()}"
            assert time.monotonic() < end, f"not seen: {what}\n{self.all_text()}"

    def see(self, text):
        self.wait(lambda s: text in s.text(), repr(text))

    def send(self, text):
        self.child.send(text)

    def resize(self, columns, lines):
        self.screen.resize(lines, columns)
        self.child.setwinsize(lines, columns)

    def end(self):
        """Reads to the end; the exit status."""
        end = time.monotonic() + SECONDS
        while self._read(0.05):
            assert time.monotonic() < end, f"the program does not end\n{self.text()}"
        self.child.close()
        return self.child.exitstatus
