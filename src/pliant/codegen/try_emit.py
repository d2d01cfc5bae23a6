"""Whether LLVM makes machine code of a text, asked in a child process.

LLVM ends the whole process when it is asked for an instruction that the target lacks ("Cannot select …"). Code of our own never asks for
one; a form that a user wrote may.

    problem_of(module.text, target("llvm:x86-64-v3"))       # "" where all is well
"""

from __future__ import annotations

import pickle
import re
import subprocess
import sys

from ..support.errors import Error
from ..target import Target
from .emit import emit_object

SECONDS = 60  # more than any form needs, also on a slow machine at work
_CHILD = "from pliant.codegen.try_emit import main; main()"


def problem_of(text: str, target: Target) -> str:
    """What LLVM says against a module, "" where it makes code of it."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", _CHILD], input=pickle.dumps((text, target)), capture_output=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it did not end in {SECONDS} seconds"
    said = child.stderr.decode(errors="replace").strip().splitlines()
    wrong = next((line for line in said if "error" in line.lower()), said[-1] if said else f"it ended with code {child.returncode}")
    return wrong if child.returncode else ""


def main() -> None:
    """The child: reads a module and its target, and makes code."""
    text, target = pickle.loads(sys.stdin.buffer.read())
    try:
        code = emit_object(text, target)
    except Error as error:
        sys.exit("error: " + "; ".join(error.facts or [error.what]))
    called = re.search(rb"llvm\.[a-z][\w.]+", code)  # what LLVM does not know as an intrinsic is a call of a function of that name
    if called is not None:
        sys.exit(f"error: LLVM has no intrinsic `{called[0].decode()}` of these types")
