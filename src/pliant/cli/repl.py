"""The conversation of `pliant chat`: reads what the user types, shows the answers.

A line that ends in a backslash goes on in the next one; three double quotes begin and end a text of several lines. Ctrl-C stops an answer
and not the program, Ctrl-D ends it.
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
HELP = """/help              this text
/reset             begin anew; the system prompt stays
/system [TEXT]     show the system prompt, or begin anew with another one
/again             answer the last question once more
/history           what was said so far
/stats             say how fast answers are, or stop saying so
/quit              end (Ctrl-D does so, too)
A line that ends in \\ goes on in the next one; \"\"\" begins and ends a text of several lines. Ctrl-C stops an answer."""


class Talk:
    """A conversation at the terminal."""

    def __init__(self, lm: LLM, system: str | None, settings: dict[str, Any], stats: bool) -> None:
        self.session = Session(lm, system, remark)
        self.settings = settings
        self.stats = stats
        self.running = True

    def turn(self, text: str) -> None:
        """One thing that the user said: a command or a question."""
        if not text.strip():
            return
        if text.startswith("/"):
            self._command(*_words(text))
        else:
            self.ask(text)

    def ask(self, text: str) -> None:
        """Answers; what goes wrong with one answer does not end the conversation."""
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
        remark(f"how fast answers are is {'said' if self.stats else 'not said any more'}")

    def _quit(self, _: str) -> None:
        self.running = False


def talk(lm: LLM, system: str | None, settings: dict[str, Any], stats: bool) -> int:
    """Talks until the user ends it."""
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
    """What the user types, of one line or several."""
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
    print(prompt, end="", file=sys.stderr, flush=True)  # stdout has nothing but answers
    return input()


def _words(text: str) -> tuple[str, str]:
    name, _, rest = text.strip().partition(" ")
    return name, rest.strip()


def _line_editing() -> None:
    """Arrows and history for `input`, where Python has them."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401
