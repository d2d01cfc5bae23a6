"""Proof of bounds: what the three answers mean, that conditions serve as long as they hold, and that our own kernels are all proven.

A "proven" that is wrong would be the worst answer, so claims about programs that are wrong for some dims are among the cases.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

import decoder_layer
import pliant
import schedule_kernels
from compiled_graphs import host_of
from counts import count
from op_cases import CASES, build
from pliant.api import Kernel
from pliant.dtype import i64
from pliant.graph import node as g
from pliant.graph.op_table import TABLE
from pliant.loop.analysis.proof import accesses, unproved_accesses
from pliant.loop.stmt import Func
from pliant.loop.structural import structural_hash
from pliant.lower.callee import func_of
from pliant.lower.layout.name_sizes import with_symbols
from pliant.lower.ops.lower_ops import lower_ops
from pliant.machine_peak import multiply_add, read_all
from pliant.program import Program
from pliant.schedule.library import default_schedule
from pliant.sym.bounds import int_range
from pliant.sym.expr import Dim, Expr
from pliant.sym.facts import EMPTY
from pliant.target import target
from random_graphs import make_function

HEAD = """from pliant import *
n = dim("n")
m = dim("m")
"""


def statuses(text: str) -> list[str]:
    """`buffer[index]: status` of the accesses of the last kernel of a text."""
    (func,) = pliant.parse(HEAD + text).kernels
    return [f"{a.buffer}[{a.index}]: {a.status}" for a in accesses(func)]


GATHER = """
@kernel
def f(x: Tensor[f32, n], idx: {role}[i64, m], y: Out[f32, m]) -> None:
    for i in range(m):
        {before}
        y[i] = {value}
"""

FOUND = [
    ("pass", "x[idx[i]]", "x[idx[i]]: unproved"),
    ("pass", "x[min(max(idx[i], 0), n - 1)]", "x[min(max(idx[i], 0), n - 1)]: unproved"),  # n may be 0
    ("pass", "select(n > 0, x[min(max(idx[i], 0), n - 1)], 0.0)", "x[min(max(idx[i], 0), n - 1)]: guarded"),
    ("pass", "select(idx[i] >= 0 and idx[i] < n, x[idx[i]], 0.0)", "x[idx[i]]: guarded"),
    ("pass", "select(idx[i] >= 0 and idx[i] <= n, x[idx[i]], 0.0)", "x[idx[i]]: unproved"),
    ("pass", "select(idx[i] < 0 or idx[i] >= n, 0.0, x[idx[i]])", "x[idx[i]]: guarded"),
    ('check(idx[i] >= 0 and idx[i] < n, "bad")', "x[idx[i]]", "x[idx[i]]: guarded"),
    ("at = idx[i]", "select(at >= 0 and at < n, x[at], 0.0)", "x[at]: guarded"),
    ("at = idx[i] % max(n, 1)", "select(n > 0, x[at], 0.0)", "x[at]: guarded"),
]


@pytest.mark.parametrize(("before", "value", "expected"), FOUND, ids=[f"{b}; {v}" for b, v, _ in FOUND])
def test_gathers(before: str, value: str, expected: str) -> None:
    found = statuses(GATHER.format(before=before, value=value, role="Tensor"))
    assert expected in found
    assert [s for s in found if s.endswith("unproved") and s != expected] == []


def test_a_condition_serves_until_its_buffer_is_written() -> None:
    check, write = 'check(idx[i] >= 0 and idx[i] < n, "bad")', "idx[i] = idx[i] + 1"
    assert "x[idx[i]]: guarded" in statuses(GATHER.format(before=f"{write}\n        {check}", value="x[idx[i]]", role="InOut"))
    assert "x[idx[i]]: unproved" in statuses(GATHER.format(before=f"{check}\n        {write}", value="x[idx[i]]", role="InOut"))


def test_a_condition_on_what_a_loop_writes_does_not_serve_in_the_loop() -> None:
    text = """
@kernel
def f(x: Tensor[f32, n], like: Tensor[f32, m], at: InOut[i64, 1], y: Out[f32, m]) -> None:
    check(at[0] >= 0 and at[0] < n, "bad")
    for i in range(m):
        y[i] = x[at[0]]
        at[0] = at[0] + 1
"""
    assert "x[at[0]]: unproved" in statuses(text)
    assert "x[at[0]]: guarded" in statuses(text.replace("at[0] = at[0] + 1", "pass"))


def test_an_init_runs_where_nothing_is_reduced() -> None:
    """A reduction of length 0 still has its init: what the reduction's loop implies of the dims is not known there."""
    text = """
@kernel
def f(x: Tensor[f32, m], z: Tensor[f32, m], like: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i, k in grid(n, m):
        with block("y", "SR", i, k) as (vi, vk):
            with init():
                y[vi] = z[0]
            y[vi] += x[vk] + z[0]
"""
    assert [s for s in statuses(text) if s.startswith("z")] == ["z[0]: unproved", "z[0]: proven"]


def test_views_and_calls() -> None:
    text = """
@kernel
def inner(a: Tensor[f32, n], b: Out[f32, n]) -> None:
    for i in range(n):
        b[i] = a[i]

@kernel
def f(x: Tensor[f32, n], like: Tensor[f32, m], y: Out[f32, m]) -> None:
    v = view(x[{start}], (4,))
    {before}
    inner(x, y)
"""
    (func,) = pliant.parse(HEAD + text.format(start="0", before='check(n == m, "bad")')).kernels
    assert {(a.kind, a.status) for a in accesses(func) if a.func == "f"} == {("view", "unproved"), ("call", "proven"), ("call", "guarded")}
    (func,) = pliant.parse(HEAD + text.format(start="n - 4", before="pass")).kernels
    found = unproved_accesses(func)
    assert [(a.kind, a.buffer) for a in found] == [("view", "x"), ("call", "y")]
    assert found[0].span is not None and found[0].span.line == 12
    assert "cannot show" in str(found[0])


def test_kernels_and_programs_tell() -> None:
    text = GATHER.format(before="pass", value="x[idx[i]]", role="Tensor")
    program = pliant.parse(HEAD + text)
    (found,) = program.unproved_accesses()
    assert (found.func, found.buffer, found.index, found.condition) == ("f", "x", "idx[i]", "idx[i] >= 0")
    assert found.span is not None and found.span.line == 9
    assert Kernel(program.kernels[0]).unproved_accesses() == [found]


def test_a_loop_that_never_runs_accesses_nothing() -> None:
    program = pliant.parse(
        HEAD + "@kernel\ndef f(x: Tensor[f32, 0], y: Out[f32, 0]) -> None:\n    for i in range(0):\n        y[i] = x[i]\n"
    )
    assert program.unproved_accesses() == []


# Our own programs.


FUNCTIONS = count(400, 4000)  # random ones: operators with dtypes, ranks and broadcast shapes that the cases leave out
VARIANTS = 6  # of each operator among these
SCHEDULED = count(2, 1000)  # of each operator, which are looked at with the default schedule too
SHARES = 16  # of the programs, each a test


@cache
def operators() -> list[tuple[Func, tuple[Expr, ...]]]:
    """The loop programs of all operators over symbolic shapes, with what their calls make sure of."""
    found: dict[bytes, tuple[Func, tuple[Expr, ...]]] = {}
    for case in CASES.values():
        found.update(programs(build(case, True)[0]))
    drawn: dict[str, int] = {}
    for seed in range(FUNCTIONS):
        for key, (func, given) in programs(make_function(seed)[0]).items():
            if key not in found and drawn.setdefault(func.name, 0) < VARIANTS:
                drawn[func.name] += 1
                found[key] = func, given
    assert {func.name for func, _ in found.values()} >= {name for name, op in TABLE.items() if not op.view} - {"scalar", "bind_dim"}
    return list(found.values())


def programs(function: g.Function) -> dict[bytes, tuple[Func, tuple[Expr, ...]]]:
    """The loop programs of a function's operators, by structure."""
    calls = [n for n in g.walk_nodes(lower_ops(function).nodes) if isinstance(n, g.CallLoop)]
    found = [(with_extents(func_of(n.callee)), tuple(r.cond for r in n.requires)) for n in calls]
    return {structural_hash(func): (func, given) for func, given in found}


def with_extents(func: Func) -> Func:
    """The program with a dim for each extent of a parameter that is a product of so many dims that it might not fit 64 bits.

    It is the extent of a tensor that is there, hence no larger than a dim can be; that is said by the border, not by the program.
    """
    large = [e for b in func.buffers for e in b.shape if e.args and int_range(e, EMPTY)[1] >= i64.max]
    return with_symbols(func, {e: Dim(f"extent_{k}") for k, e in enumerate(dict.fromkeys(large))}) if large else func


@pytest.mark.parametrize("share", range(SHARES))
def test_every_access_of_every_operator_is_shown(share: int) -> None:
    for func, given in operators()[share::SHARES]:
        assert unproved_accesses(func, given) == [], func


@pytest.mark.parametrize("share", range(SHARES))
def test_every_access_of_every_scheduled_operator_is_shown(share: int) -> None:
    seen: Counter[str] = Counter()
    chosen = []
    for func, given in operators():
        seen[func.name] += 1
        if seen[func.name] <= SCHEDULED:
            chosen.append((func, given))
    for func, given in chosen[share::SHARES]:
        assert unproved_accesses(default_schedule(func, target("native"))[0], given) == [], func


def test_every_access_of_the_example_is_shown() -> None:
    program = Program.of(decoder_layer.decoder_layer.graph)
    assert program.unproved_accesses() == []
    for func in program.kernels:
        assert unproved_accesses(default_schedule(func, target("native"))[0]) == []


@pytest.mark.parametrize("name", schedule_kernels.KERNELS)
def test_every_access_of_scheduled_kernels_is_shown(name: str) -> None:
    func = schedule_kernels.kernel(name)
    assert unproved_accesses(func) == []
    assert unproved_accesses(default_schedule(func, target("native"))[0]) == []


def test_every_access_of_the_measuring_kernels_is_shown() -> None:
    for machine in (target("native"), target("llvm:haswell")):
        assert multiply_add(machine).unproved_accesses() == []
        assert read_all(machine).unproved_accesses() == []


@pytest.mark.parametrize("seed", range(20))
def test_every_access_of_host_programs_is_shown(seed: int) -> None:
    host = host_of(make_function(seed)[0])
    for func in (host.prepare, host.size, host.run):
        mine = [a for a in accesses(func) if a.func == func.name]
        assert [str(a) for a in mine if a.status == "unproved"] == []
