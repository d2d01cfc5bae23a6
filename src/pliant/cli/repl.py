"""The interactive loop (REPL) of `pliant chat`: reads the user's input and prints the answers.

A line that ends in a backslash continues on the next one; three double quotes begin and end a text of several lines. Ctrl-C stops an
answer but not the program; Ctrl-D ends the program.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from ..llm.lm import LLM
from ..llm.session import Session
from ..support.errors import Error
from .chat import remark, show

QUOTES = '"""'
HELP = """/help              show this help
/reset             start over; the system prompt stays
/system [TEXT]     show the system prompt, or start over with another one
/again             answer the last question again
/history           show the conversation
/stats             switch the display of tokens per second on or off
/quit              quit (also Ctrl-D)
A line that ends in \\ continues on the next one; \"\"\" begins and ends a text of several lines. Ctrl-C stops an answer."""


class Talk:
    """A conversation with a language model on the terminal: its state, and its commands."""

    def __init__(self, lm: LLM, system: str | None, settings: dict[str, Any], stats: bool) -> None:
        self.session = Session(lm, system, remark)
        self.settings = settings
        self.stats = stats
        self.running = True

    def turn(self, text: str) -> None:
        """Runs one input of the user: a command if it begins with `/`, else a question; nothing for an empty one."""
        if not text.strip():
            return
        if text.startswith("/"):
            self._command(*_words(text))
        else:
            self.ask(text)

    def ask(self, text: str) -> None:
        """Prints the answer to a question; an error does not end the conversation."""
        try:
            show(self.session.stream(text, **self.settings), self.stats)
        except KeyboardInterrupt:
            remark("stopped")
        except Error as problem:
            remark(str(problem))

    def _command(self, name: str, rest: str) -> None:
        commands: dict[str, Callable[[str], None]] = {
            "/help": lambda _: print(HELP, file=sys.stderr),
            "/reset": self._reset,
            "/system": self._system,
            "/again": self._again,
            "/history": self._history,
            "/stats": self._stats,
            "/quit": self._quit,
            "/exit": self._quit,
            "/bye": self._quit,
        }
        if name in commands:
            commands[name](rest)
            return
        from ..support.resolve import near

        remark(f"there is no command `{name}`; {near(name, commands) or '/help shows them'}")

    def _reset(self, _: str) -> None:
        self.session.reset()
        remark("the conversation begins anew")

    def _system(self, text: str) -> None:
        if text:
            self.session.system = text
            self._reset("")
        else:
            remark(f"system prompt: {self.session.system or 'none'}")

    def _again(self, _: str) -> None:
        question = self.session.take_back()
        if question is None:
            remark("nothing was asked yet")
        else:
            self.ask(question)

    def _history(self, _: str) -> None:
        for message in self.session.messages:
            print(f"{message['role']}: {message['content']}", file=sys.stderr)

    def _stats(self, _: str) -> None:
        self.stats = not self.stats
        remark(f"tokens per second are {'shown' if self.stats else 'no longer shown'}")

    def _quit(self, _: str) -> None:
        self.running = False


def talk(lm: LLM, system: str | None, settings: dict[str, Any], stats: bool) -> int:
    """Runs a conversation until the user ends it; returns the exit code 0.

    `settings` are the options of each answer; with `stats`, the speed is shown after it.
    """
    _line_editing()
    remark(f"{lm.name}, context of {lm.context} tokens; /help shows the commands")
    conversation = Talk(lm, system, settings, stats)
    while conversation.running:
        try:
            conversation.turn(read())
        except EOFError:
            print(file=sys.stderr)
            break
        except KeyboardInterrupt:
            print(file=sys.stderr)
            remark("Ctrl-D or /quit ends the conversation")
    return 0


def read() -> str:
    """Reads one input of the user, of one or several lines."""
    line = _line("> ")
    if line.startswith(QUOTES):
        return _quoted(line.removeprefix(QUOTES))
    lines = []
    while line.endswith("\\"):
        lines.append(line[:-1])
        line = _line("… ")
    return "\n".join([*lines, line])


def _quoted(first: str) -> str:
    lines = [first]
    while not lines[-1].rstrip().endswith(QUOTES):
        lines.append(_line("… "))
    lines[-1] = lines[-1].rstrip().removesuffix(QUOTES)
    return "\n".join(lines).strip("\n")


def _line(prompt: str) -> str:
    if sys.stdout.isatty():
        return input(prompt)
    print(prompt, end="", file=sys.stderr, flush=True)  # stdout is only for answers
    return input()


def _words(text: str) -> tuple[str, str]:
    name, _, rest = text.strip().partition(" ")
    return name, rest.strip()


def _line_editing() -> None:
    """Enables line editing and history for `input`, if Python has readline."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401
