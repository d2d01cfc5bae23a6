"""Schedules: handles through edits, traces, undoing; what each primitive gives, computed by the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.api import Kernel
from pliant.interp.loop import run_loop
from pliant.loop.structural import assert_same
from pliant.schedule import Schedule, Trace
from pliant.schedule.primitives.split import split
from pliant.support.errors import ScheduleError
from schedule_invariant import check_schedule
from schedule_kernels import kernel, parse

# kernel, what to do; exact unless the schedule declares another rounding
STEPS = [
    ("matmul_i32", "s.split(i, 4)"),
    ("matmul_i32", "s.split(i, 4, tail='cut')"),
    ("matmul_i32", "s.split(k, 3, tail='cut')"),
    ("matmul_i32", "s.split(i, 5, tail='balance')"),
    ("matmul_i32", "s.split(k, 6, tail='balance')"),
    ("matmul_i32", "s.split(j, None, 2, 3)"),
    ("matmul_i32", "s.fuse(i, j)"),
    ("matmul_i32", "s.reorder(k, j, i)"),
    ("matmul_i32", "s.reorder(k, i); s.vectorize(i) if False else s.parallel(j)"),
    ("matmul_i32", "s.reorder(k, j); s.vectorize(j)"),
    ("matmul_i32", "o, p = s.split(k, 4); s.unroll(p)"),
    ("matmul_i32", "o, p = s.split(i, 4); s.partition(o)"),
    ("matmul_i32", "s.decompose_reduction('c', i)"),
    ("matmul_i32", "s.reorder(k, i); s.decompose_reduction('c', k)"),
    ("matmul_i32", "o, p = s.split(k, 4); s.rfactor('c', p, j)"),
    ("matmul_i32", "o, p = s.split(k, 4); s.rfactor('c', p, j, scope='register'); s.decompose_reduction('c', o); s.partition(o)"),
    ("matmul_i32", "o, p = s.split(j, 4); s.cache_write('c', o)"),
    ("matmul_i32", "o, p = s.split(j, 4); q, r = s.split(k, 3); s.reorder(q, p, r); s.cache_read('c', 'b', q)"),
    ("matmul", "s.cache_read('c', 'b', i, order=(1, 0))"),
    ("matmul", "s.cache_read('c', 'b', i, order=(1, 0), dtype='f64')"),
    ("matmul_i32", "s.reindex('c', 'a', dtype='i64'); s.reindex('c', 'b')"),
    ("matmul", "s.contract('c')"),
    ("matmul", "s.cache_write('c', i); s.parallel(i)"),
    ("chain", "s.compute_inline('t'); s.reverse_compute_inline('out')"),
    ("chain", "s.compute_at('t', s.loops('u')[1])"),
    ("chain", "s.reverse_compute_at('u', i); s.reverse_compute_at('out', s.loops('u')[0])"),
    ("epilogue", "s.cache_write('c', i); s.reverse_compute_inline('d'); s.reverse_compute_inline('out')"),
    ("epilogue", "s.reverse_compute_at('d', j)"),
    ("softmax", "[s.compute_at(b, s.loops('out')[0]) for b in ('total', 'e', 'top')]; s.parallel(s.loops('out')[0])"),
    ("softmax", "s.join(s.loops('e')[0], s.loops('total')[0]); s.join(s.loops('e')[1], s.loops('total')[1])"),
    ("softmax", "q = s.join(s.loops('total')[0], s.loops('out')[0]); s.parallel(q)"),
    ("chain", "s.join(i, s.loops('u')[0]); s.join(i, s.loops('out')[0]); s.join(j, s.loops('u')[1])"),
    ("epilogue", "s.begin_reduction('c', k); s.join(i, s.loops('d')[0])"),
    ("matmul_i32", "o, p = s.split(k, 4); s.rfactor('c', p, j); s.begin_reduction('c_sum', s.loops('c_sum')[-1])"),
    ("matmul", "s.contract('c'); s.begin_reduction('c', k); s.unroll(k)"),
    ("matmul_i32", "s.rfactor('c', k, j, scope='workspace'); s.parallel(k)"),
    ("matmul_i32", "o, p = s.split(k, 8); s.rfactor('c', o, j, scope='workspace'); q, r = s.split(p, 2); s.reorder(q, r)"),
    (
        "matmul_i32",
        "o, p = s.split(k, 8); s.rfactor('c', o, j, scope='workspace'); q, r = s.split(p, 4); s.rfactor('c', r, o); "
        "s.decompose_reduction('c', q); s.partition(q)",
    ),
    ("matmul", "s.reorder(k, i, j); s.begin_reduction('c', k)"),
    ("stencil", "o, p = s.split(s.loops('out')[0], 4); s.vectorize(p)"),
    ("rms_norm", "o, p = s.split(s.loops('out')[0], 4); s.partition(p); s.compute_at('ss', o)"),
    ("matmul", "s.transform_layout('b', lambda k, n: (n // 16, k, n % 16))"),
    ("matmul", "s.transform_layout('b', 'lambda k, n: (n // 16, k // 4, n % 16, k % 4)', 0.0)"),
    ("matmul_i32", "s.transform_layout('b', lambda k, n: (n // 8, k, n % 8), 7); o, p = s.split(j, 8); s.reorder(o, k, p); s.vectorize(p)"),
    ("matmul_i32", "s.transform_layout('c', lambda i, j: (j // 8, i // 3, i % 3, j % 8), -1)"),
    ("matmul_i32", "s.transform_layout('a', lambda i, k: (k, i)); s.transform_layout('a', lambda k, i: (i // 4, k, i % 4))"),
    ("chain", "s.transform_layout('t', lambda i, j: (j // 4, i, j % 4)); s.parallel(i)"),
    ("chain", "s.transform_layout('u', lambda i, j: (j // 4, i // 5, j % 4, i % 5), 0.5); s.compute_inline('t')"),
    ("softmax", "s.transform_layout('e', lambda i, j: (j, i)); s.transform_layout('out', lambda i, j: (j, i))"),
    ("stencil", "s.transform_layout('x', lambda i: (i // 4, i % 4)); s.transform_layout('t', lambda i: (i // 6, i // 2 % 3, i % 2), 3)"),
    ("batched", "s.transform_layout('c', lambda n, h, j: (n, h * 24 + j))"),
    ("matmul", "s.transform_block_layout('c', lambda i, j, k: (j // 8, i, j % 8, k))"),
    ("matmul_i32", "s.transform_block_layout('c', lambda i, j, k: (k, i * 1 + 0, j))"),
    ("matmul", "s.transform_block_layout('c', lambda i, j, k: (i * 40 + j, k // 4, k % 4))"),
    ("conv", "s.transform_block_layout('out', lambda i, o, r, k: (i, o, r * 3 + k))"),
    ("matmul_i32", "s.reindex('c', 'b'); s.reindex('c', 'a', scope='workspace'); s.reindex('c', 'c')"),
    ("matmul", "s.split(j, 16); s.split(i, 4); s.reindex('c', 'b')"),
    ("conv", "s.reindex('out', 'p'); s.reindex('out', 'w'); s.transform_block_layout('out', lambda i, o, r, k: (i, o, r * 3 + k))"),
    ("conv", "s.decompose_padding('p')"),
    ("matmul", "s.pad('c', 4, 16, 8)"),
    ("matmul", "s.pad('c', 1, 1, 5); s.decompose_padding('a_pad')"),
    ("matmul_i32", "s.pad('c', 3, 4, 5); s.decompose_padding('b_pad'); o, p = s.split(k, 5); s.unroll(p)"),
    ("matmul_i32", "s.pad('c', 4, 1, 1); o, p = s.split(i, 4); s.reorder(o, j, k, p); s.blockize(p)"),
    ("matmul", "o, p = s.split(j, 8); q, r = s.split(k, 4); s.reorder(q, p, r); s.blockize(p); s.unroll(r); s.parallel(o)"),
    ("matmul", "o, p = s.split(j, 8); s.blockize(p)"),
    ("matmul_i32", "o, p = s.split(i, 4); s.reorder(o, j, k, p); s.blockize(p); s.vectorize(p)"),
    ("chain", "o, p = s.split(j, 4); t = s.blockize(p); s.transform_layout('t', lambda i, j: (j, i)); s.parallel(i)"),
]


def prepared(name: str) -> tuple[Schedule, dict[str, object]]:
    s = Schedule(kernel(name))
    first = next(b for b in ("c", "t", "top", "out") if f'block("{b}"' in str(s.program))
    return s, {"s": s, **dict(zip("ijk", s.loops(first), strict=False))}


@pytest.mark.parametrize(("name", "steps"), STEPS)
def test_primitives_keep_the_meaning(name: str, steps: str) -> None:
    s, names = prepared(name)
    exec(steps, names)
    check_schedule(kernel(name), s)


def test_a_loop_that_decides_alone_just_ends() -> None:
    """There is no rest in which no block would run."""
    s = Schedule(kernel("chain"))
    outer, inner = s.split(s.loops("out")[0], 4)
    (ended,) = s.partition(inner)
    assert str(ended.loop.stop) == "min(n - i_0 * 4, 4)" and "out_rest" not in str(s.program) and "where" not in str(s.program)
    assert "i_1, = s.partition(i_1)" in str(s.trace)
    s.compute_at("u", outer)
    assert str(s.loops("u")[1].loop.stop) == str(ended.loop.stop)


def test_a_joined_loop_may_read_what_earlier_iterations_wrote() -> None:
    """t[i - 1] is there when iteration i comes; t[i + 1] is not."""
    text = """
n = dim("n")
@kernel
def f(x: Tensor[i32, n + 2], out: Out[i32, n]) -> None:
    t = alloc((n + 2,), i32)
    for i in serial(n):
        with block("t", "S", i) as vi:
            t[vi + 1] = x[vi]
    for i in serial(n):
        with block("out", "S", i) as vi:
            out[vi] = select(vi > 0, t[vi + PLACE], 5)
"""
    func = parse(text.replace("PLACE", "0"))
    s = Schedule(func)
    joined = s.join(*s.loops("t"), *s.loops("out"))
    x, found = np.arange(9, dtype=np.int32), np.zeros(7, np.int32)
    run_loop(s.program, [x, found], [7])
    np.testing.assert_array_equal(found, [5, 0, 1, 2, 3, 4, 5])
    assert all(h.loop is joined.loop for name in ("t", "out") for h in s.loops(name))
    later = Schedule(parse(text.replace("PLACE", "2")))
    with pytest.raises(ScheduleError, match="block `out` touches elements of `t` that block `t` touches in later iterations"):
        later.join(*later.loops("t"), *later.loops("out"))


def test_a_handle_follows_its_loop() -> None:
    s = Schedule(kernel("matmul"))
    i, j, k = s.loops("c")
    c = s.block("c")
    s.reorder(j, i)
    s.unroll(k)
    assert [h.loop.var.name for h in (i, j, k)] == ["i", "j", "k"]
    assert k.loop.kind == "unroll" and j.loop.body is i.loop and k.loop.body is c.block
    assert s.loops(c) == (j, i, k)


def test_pure_primitives_leave_the_program_alone() -> None:
    func = kernel("chain")
    text = str(func)
    loop = func.body.body[1]
    new, forward = split(func, loop, 4)
    assert str(func) == text and str(new) != text
    outer, inner = forward.made
    assert forward(loop) is outer and outer.body is inner


def test_trace_prints_as_python() -> None:
    s = Schedule(kernel("matmul"))
    i, j, k = s.loops("c")
    i_0, i_1 = s.split(i, 4, tail="cut")
    s.reorder(i_0, j, k, i_1)
    s.unroll(i_1)
    s.annotate("c_rest", "hint", "x")
    assert str(s.trace) == (
        'i, j, k = s.loops("c")\n'
        'i, i_1 = s.split(i, 4, tail="cut")\n'
        "s.reorder(i, j, k, i_1)\n"
        "s.unroll(i_1)\n"
        's.annotate("c_rest", "hint", "x")'
    )
    names: dict[str, object] = {"s": Schedule(kernel("matmul"))}
    exec(str(s.trace), names)
    assert_same(names["s"].program, s.program)  # type: ignore[attr-defined]


def test_loops_are_found_by_block_and_iterator() -> None:
    s = Schedule(kernel("matmul_i32"))
    i = s.loop("c", "vi")
    assert i.loop is s.loops("c")[0].loop
    tiles, within = rows = s.split(i, None, 4, tail="balance")
    assert rows.tails == ("c_tail3", "c_tail2", "c_tail1")
    assert s.loops("c", "vi") == (tiles, within)
    for name, size in zip(rows.tails, (3, 2, 1), strict=True):
        *_, own = s.loops(name, "vi")
        assert str(own.loop.stop) == str(size)
        s.unroll(own)
    assert s.loop("c_tail2", "vk").loop.var.name.startswith("k")
    assert s.split(s.loop("c", "vk"), None, 4).tails == ()
    replayed = Trace.from_json(s.trace.to_json()).apply(kernel("matmul_i32"))
    assert_same(replayed, s.program)
    check_schedule(kernel("matmul_i32"), s)


def test_an_iterator_of_several_loops_is_refused() -> None:
    s = Schedule(kernel("matmul_i32"))
    with pytest.raises(ScheduleError, match="block `c` has no iterator 'vx'") as missing:
        s.loop("c", "vx")
    assert "its iterators are `vi`, `vj`, `vk`" in str(missing.value)
    s.split(s.loop("c", "vi"), None, 4)
    with pytest.raises(ScheduleError, match="iterator `vi` of block `c` goes through 2 loops") as split_one:
        s.loop("c", "vi")
    assert "s.loops(block, iterator)" in str(split_one.value) and "test_schedule.py" in str(split_one.value)


def test_attempt_undoes() -> None:
    s = Schedule(kernel("matmul"))
    i, j, k = s.loops("c")
    before, trace = s.program, str(s.trace)
    with pytest.raises(ScheduleError), s.attempt():
        outer, _ = s.split(i, 4)
        s.vectorize(k)
    assert s.program is before and str(s.trace) == trace
    assert i.loop.var.name == "i" and j.alive
    s.parallel(i)
    assert outer is i or not outer.alive


def test_a_kernel_can_be_scheduled() -> None:
    made = Kernel(kernel("matmul"))
    s = Schedule(made)
    s.unroll(s.loops("c")[2])
    assert s.func.attrs.scheduled and s.trace.apply(made).name == "matmul"
    assert s.program.attrs == kernel("matmul").attrs


def test_rounding_is_declared() -> None:
    s = Schedule(kernel("matmul"))
    _, _, k = s.loops("c")
    k_0, k_1 = s.split(k, 4)
    assert s.rounding == []
    s.reorder(k_1, k_0)
    assert s.rounding == ["block `c` sums in another order"]
    s.contract("c")
    assert s.rounding[1] == "block `c` rounds once for each product and sum"


def test_a_block_may_forbid_another_order() -> None:
    s = Schedule(kernel("matmul"))
    s.annotate("c", "reassociate", False)
    _, _, k = s.loops("c")
    k_0, k_1 = s.split(k, 4)
    with pytest.raises(ScheduleError, match="annotated reassociate=False"):
        s.reorder(k_1, k_0)
