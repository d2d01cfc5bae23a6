"""How operators are declared and found: by decorator, in families that are imported when one of their operators is used."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import pytest

import pliant.graph.ops as families
from pliant import ops
from pliant.graph.op_table import TABLE
from pliant.graph.operators import DECLARED, operator_name


def modules() -> list[ModuleType]:
    """The families."""
    return [import_module(f"{families.__name__}.{m.name}") for m in iter_modules(families.__path__)]


def test_every_declared_function_is_found_by_name() -> None:
    declared = {name: f for m in modules() for name, f in vars(m).items() if operator_name(f) == name and f.__module__ == m.__name__}
    assert set(declared) == set(ops.__all__) and len(declared) > 200
    assert all(getattr(ops, name) is f for name, f in declared.items())


def test_every_operator_has_a_function_of_its_name() -> None:
    modules()
    assert dict(TABLE) == DECLARED and set(DECLARED) <= set(ops.__all__)
    assert {name for name, op in TABLE.items() if op.name != name or (op.stages is None and not op.template)} <= {"bind_dim", "prefix"}


def test_other_names_are_none() -> None:
    assert not hasattr(ops, "matmull") and "matmull" not in TABLE and "call_host" not in TABLE
    assert operator_name(len) is None and set(dir(ops)) == set(ops.__all__)


def test_users_do_not_see_the_first_parameter() -> None:
    assert list(inspect.signature(ops.softmax).parameters) == ["x", "axis"]
    for wrong, named in (((1, 2, 3), {}), ((), {}), ((1,), {"axes": 0})):
        with pytest.raises(TypeError, match=r"^ops\.softmax: (too many|missing a required|got an unexpected)"):
            ops.softmax(*wrong, **named)


def imported(code: str) -> set[str]:
    """The families that a fresh Python has imported after some code."""
    report = "import json, sys; print(json.dumps([m for m in sys.modules if m.startswith('pliant.graph.ops.')]))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True)
    return {m.rpartition(".")[2] for m in json.loads(done.stdout)}


def test_only_families_that_are_used_are_imported() -> None:
    assert imported("import pliant.graph.verify") == set()
    assert imported("import pliant\npliant.ops.matmul") == {"linalg", "elementwise", "reduce", "shape"}
    assert imported("from pliant.graph.op_table import TABLE\nTABLE['exp'].deduce") == {"transcendental", "elementwise"}
