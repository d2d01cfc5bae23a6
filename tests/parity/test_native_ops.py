"""Each operator as native code, with poisoned memory and checked, against its numpy reference; its program printed and read back.

Cases of one table are compiled together, as one function with a result for each case; checked, two of them (all with PLIANT_LONG=1).
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

import op_cases
from compiled_graphs import call, compiled
from counts import count
from op_cases import SIZES, Case, arrays_of

from pliant.graph.builder import Builder
from pliant.graph.node import Function, Tensor
from pliant.graph.parse import parse_module
from pliant.graph.printer import constants_of, print_function
from pliant.graph.structural import assert_same
from pliant.interp.graph import run_graph
from pliant.sym.expr import Dim, const

TOGETHER = 8
CHECKED = count(2, TOGETHER)  # cases of a group that are compiled checked too
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 4e-6, "float64": 1e-12}
GROUPS = {
    f"{m.name}_{first}": dict(list(table.items())[first : first + TOGETHER])
    for m in iter_modules(op_cases.__path__)
    for table in [getattr(import_module(f"op_cases.{m.name}"), "CASES", {})]
    for first in range(0, len(table), TOGETHER)
}


def joined(cases: dict[str, Case]) -> tuple[Function, list[Any], list[str]]:
    """One symbolic function of all cases, its arguments, and the case of each result."""
    builder = Builder("cases")
    dims = {name: Dim(name) for name in SIZES}
    results, arrays, names = [], [], []
    for name, case in cases.items():
        params = []
        for k, shape in enumerate(case.shapes):
            exprs = tuple(dims[s] if isinstance(s, str) else const(s) for s in shape)
            params.append(builder.param(f"{name}_{k}", Tensor(case.dtypes[k if k < len(case.dtypes) else 0], exprs)))
        with builder:
            made = case.call(*params)
        made = list(made) if isinstance(made, tuple) else [made]
        results += made
        names += [name] * len(made)
        arrays += arrays_of(case, [tuple(SIZES[s] if isinstance(s, str) else s for s in shape) for shape in case.shapes])
    return builder.finish(results), arrays, names


@pytest.mark.parametrize("checked", [False, True], ids=["poisoned", "checked"])
@pytest.mark.parametrize("group", GROUPS)
def test_native_code_equals_the_reference(group: str, checked: bool) -> None:
    cases = GROUPS[group]
    if checked:
        cases = dict([(n, c) for n, c in cases.items() if c.checked][-CHECKED:])
    function, arrays, names = joined(cases)
    expected = run_graph(function, [a.copy() for a in arrays])
    f = compiled(function, poison=True, checked=checked)
    for name, found, want in zip(names, call(f, arrays), expected, strict=True):
        want = np.asarray(want)
        assert found.shape == want.shape and found.dtype == want.dtype, name
        close = TOLERANCE.get(want.dtype.name, 0.0)
        np.testing.assert_allclose(found.astype(np.float64), want.astype(np.float64), rtol=close, atol=close, err_msg=name)


@pytest.mark.parametrize("group", GROUPS)
def test_printed_functions_read_back_the_same(group: str) -> None:
    function, _, _ = joined(GROUPS[group])
    again = parse_module(print_function(function), {}, constants=constants_of(function))
    assert_same(again["cases"], function)
