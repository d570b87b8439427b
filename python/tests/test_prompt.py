"""`forebay sql` on a terminal, as somebody sees it who types: a pseudo-terminal stands for his."""

import os
import pty
import re
import select
import signal
import termios
import time

import pytest

import forebay
from serving import command

DEADLINE_S = 120


class Terminal:
    """The prompt of a store. What it prints is kept without the escapes that move the cursor."""

    def __init__(self, path, state):
        environment = os.environ | {"XDG_STATE_HOME": str(state), "TERM": "xterm"}
        arguments = [command(), "sql", "--dir", str(path)]
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever runs the tests may ignore it
            termios.tcsetwinsize(0, (24, 200))  # no line is folded
            os.execvpe(arguments[0], arguments, environment)
        self.bytes, self.said, self.taken = b"", "", 0
        self.until("forebay> ")

    def read(self, within_s):
        """Whether something more was printed within some seconds."""
        readable, _, _ = select.select([self.terminal], [], [], within_s)
        if readable:
            self.bytes += os.read(self.terminal, 65536)
            self.said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", self.bytes.decode(errors="ignore"))[self.taken :]
        return bool(readable)

    def until(self, text):
        """What was printed until a text was, which is taken off."""
        ends = time.monotonic() + DEADLINE_S
        while text not in self.said:
            readable = self.read(max(0, ends - time.monotonic()))
            assert readable, f"{text!r} was not printed within {DEADLINE_S} s, but {self.said!r}"
        before, self.said = self.said.split(text, 1)
        self.taken += len(before) + len(text)
        return before

    def until_it_answers(self):
        """Waits until the line editor has left the terminal, where Ctrl-C is a signal again and not a key of the next line."""
        ends = time.monotonic() + DEADLINE_S
        while not termios.tcgetattr(self.terminal)[3] & termios.ISIG:
            assert time.monotonic() < ends, "the line is not taken"
            self.read(0.001)

    def type(self, keys):
        os.write(self.terminal, keys.encode())

    def ask(self, line):
        """What is printed between a line and the next prompt."""
        self.type(line + "\r")
        self.until(line + "\n")
        return self.until("forebay> ")

    def end(self):
        """Ends as Ctrl-D does; gives the exit code."""
        self.type("\x04")
        _, status = os.waitpid(self.pid, 0)
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def terminal(path, tmp_path):
    with forebay.open(path) as store:
        solver = store.create_table("solver", {"reward": "float32", "answer": "utf8"})
        ids = [f"q{row}_0_0" for row in range(2000)]
        solver.insert(policy_version=0, sample_ids=ids, reward=[float(row % 2) for row in range(2000)])
    return lambda: Terminal(path, tmp_path / "state")


def test_statements_and_commands_are_answered(terminal):
    prompt = terminal()
    assert "0.5" in prompt.ask("SELECT avg(reward) AS mean FROM solver;")
    assert "solver" in prompt.ask("\\d")
    described = prompt.ask("\\d solver")
    assert "reward_status" in described and "excluded_reason" in described
    assert "timing is on" in prompt.ask("\\timing")
    assert re.search(r"\d ms", prompt.ask("SELECT 1 AS one;"))
    assert "did you mean" in prompt.ask("SELECT rewards FROM solver;").lower()
    assert "42" in prompt.ask("SELECT 42 AS answer;"), "a mistake ends nothing"
    assert prompt.end() == 0


def test_names_are_completed(terminal):
    prompt = terminal()
    prompt.type("SELECT count(*) FROM sol\t;\r")
    prompt.until("solver;\n")
    assert "2000" in prompt.until("forebay> ")
    prompt.end()


def test_ctrl_c_clears_the_line_that_is_typed(terminal):
    prompt = terminal()
    prompt.type("SELECT nonsense\x03")
    prompt.until("forebay> ")
    assert "7" in prompt.ask("SELECT 7 AS seven;"), "a line that was broken off is gone"
    assert prompt.end() == 0


ENDLESS = "SELECT count(*) FROM solver a, solver b, solver c, solver d WHERE a.turn + b.turn + c.turn + d.turn > 3;"


@pytest.mark.parametrize("wait_ms", [0, 30, 500])
def test_ctrl_c_ends_the_query_that_runs_whenever_it_comes(terminal, wait_ms):
    prompt = terminal()
    for _ in range(3):
        line = f"{ENDLESS} SELECT 'not asked';"
        prompt.type(line + "\r")
        prompt.until(line + "\n")
        prompt.until_it_answers()
        prompt.read(wait_ms / 1000)
        prompt.type("\x03")
        before = prompt.until("ended by Ctrl-C")
        assert "not asked" not in before + prompt.until("forebay> "), "the rest of the line is not asked either"
    assert "7" in prompt.ask("SELECT 7 AS seven;")
    assert prompt.end() == 0


def test_lines_are_remembered_also_by_the_next_program_and_after_a_kill(terminal, tmp_path):
    prompt = terminal()
    prompt.ask("SELECT 1234 AS first;")
    os.kill(prompt.pid, signal.SIGKILL)
    os.waitpid(prompt.pid, 0)
    os.close(prompt.terminal)
    prompt = terminal()
    prompt.type("\x1b[A\r")
    prompt.until("SELECT 1234 AS first;\n")
    assert "1234" in prompt.until("forebay> ")
    prompt.end()
    kept = (tmp_path / "state/forebay/sql_history").read_text()
    assert "SELECT 1234 AS first;" in kept
