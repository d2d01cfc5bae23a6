"""What is generated from the declarations of operators is current: the table of docs/operators.md, and the stub of `pliant.ops`."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

from pliant import ops

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import list_operators


@pytest.mark.parametrize("file", [list_operators.STUB, list_operators.PAGE], ids=lambda f: f.name)
def test_generated_files_are_current(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == list_operators.generated()[file], "run python tools/list_operators.py"


def test_every_operator_says_what_it_does() -> None:
    for name in ops.__all__:
        assert re.match(r"\S.*[.:]", inspect.getdoc(getattr(ops, name)) or ""), name
