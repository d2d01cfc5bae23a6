"""Index maps: read from functions and text, the shapes they make, their inverses; packed operands are read with unit stride."""

from __future__ import annotations

import itertools

import pytest

from pliant.codegen.emit import emit_assembly
from pliant.codegen.llvm import generate
from pliant.dtype import i64
from pliant.schedule import Schedule
from pliant.support.errors import ScheduleError
from pliant.support.refusal import Refusal
from pliant.sym.expr import Const, Dim, Var
from pliant.sym.index_map import Layout, index_map
from pliant.sym.semantics import evaluate
from pliant.target import target
from schedule_invariant import check_schedule
from schedule_kernels import kernel, parse

CASES = [
    ("lambda k, n: (n // 16, k, n % 16)", (3, 40), (3, 3, 16)),
    ("lambda k, n: (n // 8, k // 4, n // 2 % 4, k % 4, n % 2)", (6, 20), (3, 2, 4, 4, 2)),
    ("lambda a, b: (a * 5 + b,)", (4, 5), (20,)),
    ("lambda a, b, c: (b, a * 12 + c // 4, c % 4)", (2, 3, 45), (3, 24, 4)),
    ("lambda a: (a // 6, a // 2 % 3, a % 2)", (7,), (2, 3, 2)),
]


def layout_of(text: str, extents: tuple[int, ...]) -> Layout:
    made = index_map(text).layout([Const(e, i64) for e in extents])
    assert isinstance(made, Layout)
    return made


@pytest.mark.parametrize(("text", "extents", "shape"), CASES)
def test_every_element_has_a_place_and_comes_back(text: str, extents: tuple[int, ...], shape: tuple[int, ...]) -> None:
    layout = layout_of(text, extents)
    assert tuple(e.value for e in layout.shape) == shape
    place_of = eval(text)  # the same map, computed by Python
    places = {place_of(*at): at for at in itertools.product(*map(range, extents))}
    assert len(places) == len(list(itertools.product(*map(range, extents))))
    coordinates = [Var(f"p{n}") for n in range(len(shape))]
    back, inside = layout.inverse(coordinates), layout.is_element(coordinates)
    for at in itertools.product(*map(range, shape)):
        values = dict(zip(coordinates, at, strict=True))
        found = tuple(int(evaluate(e, values)) for e in back)
        assert bool(evaluate(inside, values)) == (at in places)
        assert at not in places or found == places[at]


def test_symbolic_extents_are_rounded_up() -> None:
    n, even = Dim("n"), Dim("m", multiple_of=16)
    packed = index_map(lambda k, n: (n // 16, k, n % 16))
    made, whole = packed.layout((Const(8, i64), n)), packed.layout((Const(8, i64), even))
    assert isinstance(made, Layout) and isinstance(whole, Layout)
    assert str(made.shape) == "((n + 15) // 16, 8, 16)" and made.has_padding()
    assert str(whole.shape) == "(m // 16, 8, 16)" and not whole.has_padding()


def test_a_map_may_name_sizes() -> None:
    h, w = Dim("h"), Dim("w")
    rows = index_map(lambda i, j: (i * (w + 2) + j,), [h, w])
    assert str(rows) == "lambda i, j: (i * (w + 2) + j,)" and rows.sizes == {w}
    assert str(index_map(str(rows), [h, w])) == str(rows)
    made = rows.layout((h + 1, w + 2))
    assert isinstance(made, Layout) and not made.has_padding()
    at = Var("at")
    for sizes in ({h: 0, w: 0}, {h: 3, w: 1}, {h: 2, w: 5}):
        elements = list(itertools.product(range(sizes[h] + 1), range(sizes[w] + 2)))
        assert [tuple(int(evaluate(e, {**sizes, at: n})) for e in made.inverse([at])) for n in range(len(elements))] == elements


def test_sizes_that_are_not_the_programs() -> None:
    n, other = Dim("n"), Dim("other")
    with pytest.raises(ScheduleError, match="made of its arguments"):
        index_map(lambda i, j: (i * other + j,), [n])
    with pytest.raises(ScheduleError, match="has the name of the size `n`"):
        index_map(eval("lambda n: (n // 2 * k + n % 2,)", {"k": n}), [n])
    with pytest.raises(ScheduleError, match="the layout of a parameter names numbers alone, not `n`"):
        Schedule(kernel("matmul")).transform_layout("a", "lambda i, j: (j * n + i,)")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lambda a, b: (b,)", "come to the same place"),
        ("lambda a, b: (a, b * 2)", "leaves gaps"),
        ("lambda a, b: (a, b + 1)", "leaves gaps"),
        ("lambda a, b: (a + b,)", "overlap"),
        ("lambda a: (a,)", "takes 1 coordinates, not 2"),
    ],
)
def test_what_is_no_layout(text: str, reason: str) -> None:
    found = index_map(text).layout((Const(4, i64), Const(6, i64)))
    assert isinstance(found, Refusal) and reason in found.reason


@pytest.mark.parametrize(
    "text", ["", "a", "lambda *a: a", "lambda a: open(a)", "lambda a: a / 2", "lambda a: b", "lambda a=1: a", "lambda a: (a" + "+a" * 3000]
)
def test_text_that_is_no_map(text: str) -> None:
    with pytest.raises(ScheduleError, match="this is no index map"):
        index_map(text)


def test_a_function_that_gives_no_numbers() -> None:
    with pytest.raises(ScheduleError, match="gives whole numbers made of its arguments"):
        index_map(lambda a: (a, "b"))
    foreign = Var("other")
    with pytest.raises(ScheduleError, match="gives whole numbers made of its arguments"):
        index_map(lambda a: (a + foreign,))


def test_a_packed_operand_is_read_row_by_row() -> None:
    s = Schedule(kernel("panels"))
    s.transform_layout("b", lambda k, n: (n // 16, k, n % 16))
    _, j, k = s.loops("c")
    j_0, j_1 = s.split(j, 16)
    s.reorder(j_0, k, j_1)
    s.vectorize(j_1)
    module = generate([s.program], target("llvm:x86-64-v3"))
    code = emit_assembly(module.text, module.target)
    assert "vmulps" in code and "gather" not in code and "vinsertps" not in code


def test_caches_with_maps_of_their_own() -> None:
    """The windows of a convolution, its weights and its result, each laid out as a matrix of tiles; sizes that do not divide are padded."""
    func = kernel("conv")
    s = Schedule(func)
    s.reindex_cache_read("out", "p", lambda i, o, r, k: (i // 4, r * 3 + k, i % 4))
    s.reindex_cache_read("out", "w", "lambda i, o, r, k: (o // 2, r * 3 + k, o % 2)")
    s.reindex_cache_write("out", "out", lambda i, o, r, k: (i // 4, o, i % 4))
    shapes = [line.split("alloc(")[1] for line in str(s.program).splitlines() if "_reindex = alloc" in line]
    assert shapes == ["((n + 3) // 4, 9, 4), i32)", "(3, 9, 2), i32)", "((n + 3) // 4, 5, 4), i32)"]
    check_schedule(func, s)


def test_places_that_are_never_read_are_not_spelled_out() -> None:
    """In the first iteration of a scan the element before is no element: its index stays one that a program may be written with."""
    func = kernel("scan")
    s = Schedule(func)
    s.loop_partition(s.loop("out", "vj"), 1, None)
    s.transform_layout("out", "lambda a, b: (b // 16, a, b % 16)", 3)
    check_schedule(func, s)


def test_padding_of_bools_is_a_bool() -> None:
    text = """
n = dim("n")
@kernel
def f(x: Tensor[i32, n], out: Out[bool_, n]) -> None:
    for i in serial(n):
        with block("out", "S", i) as vi:
            out[vi] = x[vi] < 3
"""
    func = parse("\nfrom pliant import bool_" + text)
    with pytest.raises(ScheduleError, match="3 is no value of bool"):
        Schedule(func).transform_layout("out", "lambda a: (a // 4, a % 4)", 3)
    s = Schedule(func)
    s.transform_layout("out", "lambda a: (a // 4, a % 4)", 1)
    check_schedule(func, s)


def test_branches_that_no_run_enters_keep_their_indices() -> None:
    """`j < 4` always holds, so that facts of the other branch contradict each other: no constant outside of the buffer may come of them."""

    pick = parse(
        """
n = dim("n")
@kernel
def pick(x: Tensor[f32, n, 2], y: Out[f32, n, 2]) -> None:
    for i, j in grid(n, 2):
        with block("y", "SS", i, j) as (vi, vj):
            if vj < 4:
                y[vi, vj] = x[vi, vj]
            else:
                y[vi, vj] = 3.0
"""
    )
    s = Schedule(pick)
    s.transform_layout("y", "lambda a, b: (b // 4, a // 3, b % 4, a % 3)", 3)
    check_schedule(pick, s)
