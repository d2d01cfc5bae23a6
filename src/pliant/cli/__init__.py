"""The command `pliant`: finds the command, runs it, and turns what went wrong into a message and an exit code.

    pliant doctor --json

A command is a module of this package, imported when it is asked for, with `arguments(parser)` and `run(options)`; adding one is a file
and a line of COMMANDS. Answers go to stdout, progress and remarks to stderr.

Exit codes: 0; 1 it ran and failed; 2 wrong usage, a bad or unsupported file; 130 Ctrl-C. A traceback is shown only with PLIANT_DEBUG=1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import NoReturn, cast

from .. import __version__

COMMANDS = {
    "chat": "talk to a language model, or ask it one question",
    "run": "run a model on arrays, images or random numbers: outputs, time, rate of arithmetic",
    "compile": "make a .pliant file of a model",
    "export": "make files of a model that are used without Pliant: a library, a WebAssembly module",
    "check": "compare a model with another runtime, node by node",
    "doctor": "what Pliant finds on this machine, and what the machine can do",
    "inspect": "what a model file holds: its contract, its program, its tensors",
    "bench": "how fast a language model reads and writes, beside a peer and the machine's limits",
    "cache": "how much compiled code is kept, and a way to remove it",
    "models": "the language models on this machine, and those that can be fetched by name",
}


class Usage(Exception):
    """A command line that means nothing; `help` is a way out."""

    def __init__(self, what: str, help: str = "") -> None:
        super().__init__(what)
        self.help = help


class Parser(argparse.ArgumentParser):
    """argparse with our manners: a mistake is raised, with the nearest option beside it."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raises what argparse would have printed."""
        raise Usage(message, f"`{self.prog} --help` shows the options")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """The options; one that does not exist is named, with what it may have meant."""
        options, unknown = self.parse_known_args(argv)
        if unknown:
            raise Usage(
                f"there is no {'option' if unknown[0].startswith('-') else 'argument'} `{unknown[0]}`",
                near(unknown[0].partition("=")[0], self._option_string_actions) or f"`{self.prog} --help` shows the options",
            )
        return options


def near(word: str, known: Iterable[str]) -> str:
    """`did you mean ...?`, or nothing."""
    from ..support.resolve import near

    return near(word, known)


def choose(word: str, known: Sequence[str], what: str) -> str:
    """`word` if it is one of the known ones."""
    if word not in known:
        every = "one of " + ", ".join(f"`{k}`" for k in known)
        raise Usage(f"there is no {what} `{word}`", near(word, known) or every)
    return word


def progress(text: str) -> None:
    """Says on the terminal what is being done, in place of what was said before; quiet when nobody looks."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line (that of the process if none is given), and returns its exit code."""
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        progress("")
        return 130
    except BrokenPipeError:  # who reads has gone: nothing is left to be said, also not when Python flushes at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as problem:
        progress("")
        if os.environ.get("PLIANT_DEBUG") == "1":
            raise
        return _report(problem)


def _run(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(_help(), end="", file=sys.stdout if argv else sys.stderr)
        return 0 if argv else 2
    if argv[0] in ("-V", "--version"):
        print(f"pliant {__version__}")
        return 0
    if argv[0].startswith("-"):
        raise Usage(f"there is no option `{argv[0]}`", near(argv[0], ("--help", "--version")) or "`pliant --help` shows the commands")
    name = choose(argv[0], list(COMMANDS), "command")
    command = import_module(f".{name}", __name__)
    parser = Parser(f"pliant {name}", COMMANDS[name])
    command.arguments(parser)
    try:
        options = parser.parse(argv[1:])
    except SystemExit:  # --help has been shown
        return 0
    run = cast(Callable[[argparse.Namespace], int], command.run)
    code = run(options)
    sys.stdout.flush()
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    commands = "".join(f"  {name:{width}}  {what}\n" for name, what in COMMANDS.items())
    return (
        "usage: pliant <command> [options]\n\nA compiler for machine-learning models whose shapes bend.\n\n"
        f"commands:\n{commands}\noptions:\n  --help     this text, or that of a command: pliant <command> --help\n  --version\n"
    )


def _report(problem: Exception) -> int:
    """Says what went wrong, in our errors' words, and returns the exit code."""
    if isinstance(problem, Usage):
        print(f"pliant: {problem}" + (f"\nhelp: {problem.help}" if problem.help else ""), file=sys.stderr)
        return 2
    from ..support.errors import Error, ModelFileError, UnsupportedError

    if isinstance(problem, Error):
        caller = ("<", sys.argv[0])  # the call of this command is no place of the user's
        problem.places = [(span, note) for span, note in problem.places if not span.file.startswith(caller)]
        print(f"pliant: {problem}", file=sys.stderr)
        return 2 if isinstance(problem, ModelFileError | UnsupportedError) else 1
    print(
        f"pliant: {type(problem).__name__}: {problem}\nhelp: this is a defect of Pliant; PLIANT_DEBUG=1 shows where, please report it",
        file=sys.stderr,
    )
    return 1
