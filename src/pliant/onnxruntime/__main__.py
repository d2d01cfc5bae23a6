"""Runs an application that imports onnxruntime, with Pliant in its place.

python -m pliant.onnxruntime app.py --its-options
python -m pliant.onnxruntime -m package.module --its-options
"""

from __future__ import annotations

import os
import runpy
import sys

from .install import install

USAGE = "usage: python -m pliant.onnxruntime (app.py | -m module) [its arguments]"


def main(arguments: list[str]) -> int:
    """Runs the application that the arguments name, with `onnxruntime` replaced by Pliant; returns 0 when it ends.

    It sees its own arguments and runs as `__main__`. Without an application, or if its file is not there, it prints the usage and returns
    2.
    """
    module = arguments[:1] == ["-m"]
    rest = arguments[1:] if module else arguments
    if not rest or (not module and rest[0].startswith("-")):
        print(USAGE, file=sys.stderr)
        return 2
    if not module and not os.path.exists(rest[0]):
        print(f"error: there is no file {rest[0]}\n{USAGE}", file=sys.stderr)
        return 2
    install()
    sys.argv = rest
    if module:
        sys.path[0] = os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(rest[0]))
        runpy.run_path(rest[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
