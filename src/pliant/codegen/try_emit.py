"""Tries in a child process whether LLVM can compile a text.

LLVM aborts the whole process if it is asked for an instruction that the target lacks ("Cannot select …"). Our own code never asks for
one, but an instruction form written by a user may.

    problem_of(module.text, target("llvm:x86-64-v3"))       # "" if LLVM compiles it
"""

from __future__ import annotations

import pickle
import re
import subprocess
import sys

from ..support.errors import Error
from ..target import Target
from .emit import emit_object

SECONDS = 60  # more than any form needs, even on a slow and busy machine
_CHILD = "from pliant.codegen.try_emit import main; main()"


def problem_of(text: str, target: Target) -> str:
    """Return LLVM's error message for a module, or "" if it compiles; tried in a child process, since LLVM may abort.

    A child that does not end in `SECONDS` is an error, too.
    """
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
    """Main function of the child: reads a module and its target from stdin, and compiles it; exits with a message if that fails."""
    text, target = pickle.loads(sys.stdin.buffer.read())
    try:
        code = emit_object(text, target)
    except Error as error:
        sys.exit("error: " + "; ".join(error.facts or [error.what]))
    called = re.search(rb"llvm\.[a-z][\w.]+", code)  # an unknown intrinsic becomes a call of an undefined symbol of that name
    if called is not None:
        sys.exit(f"error: LLVM has no intrinsic `{called[0].decode()}` of these types")
