"""Makes the modules beside this file importable from every folder of tests, and Ctrl-C what it is at a terminal.

`--cpu LEVEL` runs the tests as on a machine that has no more than that x86-64 level (or CPU): `pytest --cpu x86-64-v2`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background; children would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the suite."""
    parser.addoption("--cpu", metavar="LEVEL", default="", help="test as on a machine with no more than this CPU, such as x86-64-v2")


def pytest_configure(config: pytest.Config) -> None:
    """Lowers the machine before any test module is imported; children of the tests inherit it by the environment."""
    cpu = config.getoption("--cpu")
    if not cpu:
        return
    from pliant.support.errors import UnsupportedError
    from pliant.target import native, target

    os.environ["PLIANT_CPU"] = cpu
    try:
        missing = set(target(f"llvm:{cpu}").features) - set(native.detect().features)
    except UnsupportedError as error:
        raise pytest.UsageError(f"--cpu {cpu}: {error}") from error
    if missing:
        raise pytest.UsageError(f"--cpu {cpu}: this machine lacks {', '.join(sorted(missing))}")


@pytest.fixture(autouse=True)
def _nothing_stays_declared() -> Iterator[None]:
    """Rules and instructions that a test declares are withdrawn at its end: code, and the keys of caches, of later tests depend on them."""
    yield
    left: list[str] = []
    for module in ("pliant.target.declared", "pliant.schedule.library.table"):
        declared = getattr(sys.modules.get(module), "DECLARED", None)
        if declared:
            left.append(f"{module}: {declared}")
            declared.clear()
    assert not left, left
