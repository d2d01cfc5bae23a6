"""Each operator as native code, with poisoned memory and checked, against its numpy reference; its program printed and read back.

Cases of one table are compiled together, as one function with a result for each case. Of each operator the first cases of its table are
compiled, and a few of these checked; all with PLIANT_LONG=1.
"""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest

import op_cases
from compiled_graphs import call, compiled
from counts import count
from op_cases import SIZES, Case, arrays_of, build
from pliant.graph.builder import Builder
from pliant.graph.node import Function, Op, Tensor
from pliant.graph.parse import parse_module
from pliant.graph.printer import constants_of, print_function
from pliant.graph.structural import assert_same
from pliant.interp.graph import run_graph
from pliant.sym.expr import Dim, const

TOGETHER = 8
CHECKED = count(2, TOGETHER)  # cases of a group that are compiled checked too
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 4e-6, "float64": 1e-12}
EACH = count(3, 1000)  # cases of an operator that are compiled: the first so many of its table


def chosen(table: dict[str, Case]) -> list[str]:
    """The cases in which some operator comes up for one of the first times."""
    seen: Counter[str] = Counter()
    found = []
    for name, case in table.items():
        used = {n.op for n in build(case, True)[0].nodes if isinstance(n, Op)}
        if any(seen[op] < EACH for op in used):
            found.append(name)
            seen.update(used)
    return found


def groups() -> dict[str, dict[str, Case]]:
    """The cases that are compiled, a few together."""
    found = {}
    for module in iter_modules(op_cases.__path__):
        table: dict[str, Case] = getattr(import_module(f"op_cases.{module.name}"), "CASES", {})
        names = chosen(table)
        for first in range(0, len(names), TOGETHER):
            found[f"{module.name}_{first}"] = {name: table[name] for name in names[first : first + TOGETHER]}
    return found


GROUPS = groups()


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
