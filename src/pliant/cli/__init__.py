"""The command line `pliant`: dispatches to a command, and turns errors into messages and exit codes.

    pliant doctor --json

A command is a module of this package with `arguments(parser)` and `run(options)`, imported only when it is used. To add one, add a file and
a line of COMMANDS. Results go to stdout, progress and remarks to stderr.

Exit codes: 0 success, also if a reader such as `head` wants no more of the output; 1 failure; 2 wrong usage, or a bad or unsupported file;
130 Ctrl-C. Tracebacks are shown only with PLIANT_DEBUG=1.
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
    "chat": "chat with a language model, or ask it one question",
    "embed": "make vectors of texts by an embedding model",
    "run": "run a model on arrays, images or random inputs; show its outputs, time and FLOP rate",
    "compile": "compile a model to a .pliant file",
    "export": "export a model to files that run without Pliant: a library, C source, a WebAssembly module",
    "web": "serve an exported page with the headers that threads in a browser need",
    "check": "compare a model with another runtime, node by node",
    "doctor": "show the installation, the CPU features, and the measured peak performance of this machine",
    "inspect": "show the contents of a model file: its contract, program and tensors",
    "report": "write a page of HTML about a model: times, layers, kernels with their code, memory",
    "bench": "measure the speed of a language model or ONNX model, next to other runtimes and the machine's limits",
    "video": "run a net on a video, computing what changed from frame to frame",
    "tune": "search faster schedules for a model's kernels by measuring; show, export or merge what was found",
    "cache": "show the size of the cache of compiled code, or clear it",
    "models": "list, download or remove language models",
}


class Usage(Exception):
    """An error in the command line; `help` suggests a correct one."""

    def __init__(self, what: str, help: str = "") -> None:
        super().__init__(what)
        self.help = help


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises Usage instead of exiting, and suggests the nearest option."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raises Usage with the message that argparse would have printed."""
        raise Usage(message, f"`{self.prog} --help` shows the options")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Returns the parsed options; raises Usage for an unknown option, with the nearest known one."""
        options, unknown = self.parse_known_args(argv)
        if unknown:
            raise Usage(
                f"there is no {'option' if unknown[0].startswith('-') else 'argument'} `{unknown[0]}`",
                near(unknown[0].partition("=")[0], self._option_string_actions) or f"`{self.prog} --help` shows the options",
            )
        return options


def near(word: str, known: Iterable[str]) -> str:
    """Returns `did you mean ...?`, or an empty text if no known word is similar."""
    from ..support.resolve import near

    return near(word, known)


def choose(word: str, known: Sequence[str], what: str) -> str:
    """Returns `word` if it is one of the known ones; raises Usage otherwise."""
    if word not in known:
        every = "one of " + ", ".join(f"`{k}`" for k in known)
        raise Usage(f"there is no {what} `{word}`", near(word, known) or every)
    return word


def progress(text: str) -> None:
    """Replaces the progress line on the terminal; does nothing if stderr is not a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line (that of the process if none is given), and returns its exit code: 130 after Ctrl-C.

    Errors are printed; with `PLIANT_DEBUG=1` they are raised.
    """
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        progress("")
        return 130
    except BrokenPipeError:  # the reader of the pipe has what it wanted
        _drop_output()
        return 0
    except Exception as problem:
        progress("")
        if os.environ.get("PLIANT_DEBUG") == "1":
            raise
        return _report(problem)


def _drop_output() -> None:
    """Redirects stdout, which cannot be written, so that Python's flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str]) -> int:
    """Dispatches a command line; returns the exit code. Raises Usage for an unknown command or option."""
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
        "usage: pliant <command> [options]\n\nA compiler for machine-learning models with dynamic shapes.\n\n"
        f"commands:\n{commands}\noptions:\n  --help     show this help, or that of a command: pliant <command> --help\n"
        "  --version  show the version\n"
    )


def _report(problem: Exception) -> int:
    """Prints an error to stderr and returns the exit code: 2 for a wrong command line, model file or unsupported request, else 1."""
    if isinstance(problem, Usage):
        print(f"pliant: {problem}" + (f"\nhelp: {problem.help}" if problem.help else ""), file=sys.stderr)
        return 2
    from ..support.errors import Error, ModelFileError, UnsupportedError

    if isinstance(problem, Error):
        caller = ("<", sys.argv[0])  # the script `pliant` itself is not a place in the user's code
        problem.places = [(span, note) for span, note in problem.places if not span.file.startswith(caller)]
        print(f"pliant: {problem}", file=sys.stderr)
        return 2 if isinstance(problem, ModelFileError | UnsupportedError) else 1
    if isinstance(problem, OSError) and problem.strerror:
        print(f"pliant: {problem.filename or 'the output'}: {problem.strerror}", file=sys.stderr)
        if problem.filename is None:
            _drop_output()
        return 1
    print(
        f"pliant: {type(problem).__name__}: {problem}\nhelp: this is a defect of Pliant; PLIANT_DEBUG=1 shows where, please report it",
        file=sys.stderr,
    )
    return 1
