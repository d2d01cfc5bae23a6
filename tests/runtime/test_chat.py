"""`pliant chat` through processes of its own: one question, text through stdin, and conversations at a real pseudo-terminal."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pliant
from tiny_models import tiny_file, tiny_llm

SRC = Path(pliant.__file__).parent.parent
GREEDY = ["--temperature", "0", "--max-tokens", "8"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")]), "TERM": "dumb"}


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "pliant", "chat", "-m", str(tiny_file()), *args]


def chat(*args: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    given = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    return subprocess.run(command(*args), env=environment(), capture_output=True, timeout=120, **given)  # type: ignore[call-overload, no-any-return]


def expected(prompt: str, system: str | None = None) -> str:
    before = [{"role": "system", "content": system}] if system else []
    return tiny_llm().generate([*before, {"role": "user", "content": prompt}], temperature=0, max_tokens=8).text


def test_one_question() -> None:
    done = chat("Hello", "-s", "Be brief.", *GREEDY)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == expected("Hello", "Be brief.") + "\n"


def test_stdin_stands_before_the_question() -> None:
    done = chat("Summarize this.", *GREEDY, "--json", stdin=b"some notes\n")
    found = json.loads(done.stdout)
    assert found["text"] == expected("some notes\n\nSummarize this.")
    assert found["finish_reason"] == "length" and found["usage"]["completion_tokens"] == 8
    assert chat(*GREEDY, stdin=b"some notes\n\nSummarize this.").stdout.decode() == found["text"] + "\n"


@pytest.mark.parametrize(
    ("args", "code", "what"),
    [
        ([], 2, "there is nothing to answer: no PROMPT, and nothing comes through stdin"),
        (["x", "--temperature", "-1"], 2, "`temperature` is -1"),
        (["x", "--temperature", "warm"], 2, "argument --temperature: invalid float value: 'warm'"),
        (["x", "--max-tokens", "0"], 2, "--max-tokens is 0"),
        (["x", "--threads", "0"], 2, "--threads is 0"),
        (["x", "--context", "-5"], 2, "--context is -5"),
        (["x", "--cache", "f8"], 2, "there is no kind of cache `f8`"),
        (["x", "--raw", "-s", "s"], 2, "--raw continues a text"),
        (["x", "-m", "no-such-model"], 2, "there is no model `no-such-model`"),
        (["x", "-m", "./none.gguf"], 2, "there is no file `./none.gguf`"),
        (["x" * 600], 1, "the text has 619 tokens, and the context holds 512"),
    ],
)
def test_what_goes_wrong_is_said(args: list[str], code: int, what: str) -> None:
    done = chat(*args)
    assert (done.returncode, done.stdout) == (code, b"")
    assert done.stderr.decode().startswith(f"pliant: {what}") and b"Traceback" not in done.stderr


class Terminal:
    """A program at a pseudo-terminal: what it has written, and a keyboard."""

    def __init__(self, args: list[str]) -> None:
        import pty

        pid, self.keys = pty.fork()
        if pid == 0:
            os.execvpe(args[0], args, environment())
        self.pid, self.seen, self.read = pid, "", 0

    def type(self, text: str) -> None:
        os.write(self.keys, text.encode())

    def wait_for(self, pattern: str, seconds: float = 60.0) -> str:
        """Waits until something is written that was not looked at before; all up to its end."""
        end = time.monotonic() + seconds
        while not (match := re.compile(pattern).search(self.seen, self.read)):
            assert time.monotonic() < end and self._more(end), f"{pattern!r} did not come; after {self.seen[self.read :]!r}"
        found = self.seen[self.read : match.end()]
        self.read = match.end()
        return found

    def _more(self, end: float) -> bool:
        ready, _, _ = select.select([self.keys], [], [], max(0.0, end - time.monotonic()))
        try:
            data = os.read(self.keys, 65536) if ready else b""
        except OSError:  # the program has gone
            return False
        self.seen += data.decode(errors="replace").replace("\r\n", "\n")
        return True

    def end(self) -> int:
        """Waits for the program's end; its exit code."""
        limit = time.monotonic() + 30
        while self._more(limit) and time.monotonic() < limit:
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextmanager
def terminal(args: list[str]) -> Iterator[Terminal]:
    found = Terminal(args)
    try:
        yield found
    finally:
        try:
            os.kill(found.pid, signal.SIGKILL)
            os.waitpid(found.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(found.keys)


on_unix = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals of Unix")


def on_screen(text: str) -> str:
    """What is left of an answer on a terminal."""
    return "".join(c for c in text if c in "\n\t" or (c >= " " and not "\x7f" <= c <= "\x9f"))


@on_unix
def test_a_conversation() -> None:
    lm = tiny_llm()
    talk = lm.session(system="Be brief.")
    with terminal(command("-s", "Be brief.", *GREEDY)) as t:
        t.wait_for(r"context of 512 tokens; /help shows the commands\n> ")
        for question in ("One?", "Two?"):
            t.type(f"{question}\r")
            t.wait_for(re.escape(question) + "\n")
            answer = on_screen(talk.ask(question, temperature=0, max_tokens=8).text)
            assert t.wait_for(r"\n> ") == f"{answer}\n> "
        t.type("first\\\rsecond\r")
        t.wait_for("second\n")
        assert t.wait_for(r"\n> ") == on_screen(talk.ask("first\nsecond", temperature=0, max_tokens=8).text) + "\n> "
        t.type('"""a\rb"""\r')
        t.wait_for('b"""\n')
        assert t.wait_for(r"\n> ") == on_screen(talk.ask("a\nb", temperature=0, max_tokens=8).text) + "\n> "
        t.type("/hlep\r")
        t.wait_for(r"there is no command `/hlep`; did you mean `/help`\?\n> ")
        t.type("/help\r")
        assert "/system [TEXT]" in t.wait_for(r"Ctrl-C stops an answer\.\n> ")
        t.type("/history\r")
        assert "user: One?" in t.wait_for(r"\n> ")
        t.type("/reset\r")
        t.wait_for("begins anew\n> ")
        t.type("/again\r")
        t.wait_for("nothing was asked yet\n> ")
        t.type("One?\r")
        t.wait_for(re.escape("One?") + "\n")
        first = on_screen(expected("One?", "Be brief."))
        assert t.wait_for(r"\n> ") == f"{first}\n> "
        t.type("/again\r")
        t.wait_for("/again\n")
        assert t.wait_for(r"\n> ") == f"{first}\n> "
        t.type("/quit\r")
        assert t.end() == 0


# A model that says `x` for ever, not too fast.
ENDLESS = """
import sys, time
from pliant.llm.sampling import Sampler
Sampler.sample = lambda self, logits, history=(): time.sleep(0.005) or 120
from pliant.cli import main
sys.exit(main(["chat", *sys.argv[1:]]))
"""


@on_unix
def test_ctrl_c_stops_the_answer_and_not_the_program() -> None:
    with terminal([sys.executable, "-c", ENDLESS, "-m", str(tiny_file())]) as t:
        t.wait_for("> ")
        time.sleep(0.5)  # Python's line editing misses a signal between its prompt and its first wait
        t.type("\x03")
        t.wait_for(r"Ctrl-D or /quit ends the conversation\n> ")
        t.type("Go\r")
        t.wait_for("Go\nxxx")
        t.type("\x03")
        t.wait_for(r"pliant: stopped\n> ")
        t.type("/history\r")
        t.wait_for(r"user: Go\nassistant: xxx+\n> ")
        t.type("\x04")
        assert t.end() == 0


@on_unix
def test_ctrl_c_ends_a_single_question() -> None:
    with terminal([sys.executable, "-c", ENDLESS, "-m", str(tiny_file()), "Go"]) as t:
        t.wait_for("xxx")
        t.type("\x03")
        assert t.end() == 130
    assert "Traceback" not in t.seen


@on_unix
def test_a_full_context_is_said() -> None:
    with terminal([sys.executable, "-c", ENDLESS, "-m", str(tiny_file()), "--context", "64"]) as t:
        t.wait_for("> ")
        t.type("Go\r")
        assert "pliant: the context is full: the answer ends here\n> " in t.wait_for(r"ends here\n> ")
        t.type("Go on\r")
        t.wait_for(r"the context of 64 tokens is full: the 2 oldest messages were dropped\n")
        t.wait_for(r"ends here\n> ")


def test_control_characters_stay_off_the_terminal() -> None:
    from pliant.cli.chat import visible

    assert visible("a\x1b[2Jb\x07\x9bc\td\n\x7fé") == "a[2Jbc\td\né"
