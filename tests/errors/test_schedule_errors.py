"""What primitives refuse, and how they say it: the user's line, the program with the statement underlined, no internals."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from pliant.loop.structural import assert_same
from pliant.schedule import Schedule, Trace
from pliant.support.errors import ModelFileError, ScheduleError
from schedule_kernels import kernel

# kernel, what to do before, the call that is refused, part of the message, part of an underlined line
REFUSALS = [
    ("matmul", "", "s.split(i, 0)", "cannot split loop `i` by 0", "grid(n, 40, 12)"),
    ("matmul", "s.unroll(k)", "s.split(k, 4)", "it is unroll, not serial", "unroll(12)"),
    ("matmul", "", "s.split(j, 3, 8)", "the parts do not cover it", "grid(n, 40, 12)"),
    ("matmul", "", "s.split(j, 50, tail='cut')", "nothing would be left for the main loop", "grid(n, 40, 12)"),
    ("matmul", "", "s.split(i, 4, tail='none')", "there is no tail='none'", "grid(n, 40, 12)"),
    ("matmul", "", "s.split(j, 4, tail='none')", "there is no tail='none'", "grid(n, 40, 12)"),
    ("matmul", "", "s.partition(i)", "no predicate depends on it", "grid(n, 40, 12)"),
    ("matmul", "k0, k1 = s.split(k, 5)", "s.partition(k0)", "block `c` has an init", "grid(n, 40, 3, 5)"),
    ("matmul", "s.parallel(i)", "s.partition(i)", "it is parallel", "parallel(n)"),
    ("matmul", "", "s.fuse(i)", "fewer than two loops", "grid(n, 40, 12)"),
    ("matmul", "", "s.fuse(i, k)", "not all of the outer one's body", "grid(n, 40, 12)"),
    ("matmul", "", "s.fuse(j, k)", "feed S and R iterators of block `c`", "grid(n, 40, 12)"),
    ("chain", "", "s.join(s.loops('t')[0], s.loops('t')[1])", "do not stand in one sequence", "grid(n, m)"),
    ("chain", "", "s.join(s.loops('u')[0], i)", "do not stand in one sequence, the first before the second", "grid(n, m)"),
    ("stencil", "", "s.join(i, s.loops('out')[0])", "they do not run over the same range", "grid(n + 2, 3)"),
    ("chain", "s.parallel(i)", "s.join(i, s.loops('u')[0])", "it is parallel, not serial", "parallel(n)"),
    ("chain", "", "s.join(i, s.loops('out')[0])", "block `u`, which is between them, uses `t`", 'block("u", "SS"'),
    (
        "softmax",
        "s.join(s.loops('total')[0], s.loops('out')[0])",
        "s.join(s.loops('total')[1], s.loops('out')[1])",
        "block `out` touches elements of `total` that block `total` touches in later iterations",
        "range(m)",
    ),
    ("matmul", "", "s.reorder(i, i)", "give each loop once", "grid(n, 40, 12)"),
    ("chain", "", "s.reorder(i, s.loops('out')[1])", "are not one nest", "grid(n, m)"),
    ("scan", "o, p = s.split(j, 2)", "s.reorder(p, o)", "has an ordered iterator", 'block("out", "SO"'),
    ("matmul", "", "s.unroll(i)", "its extent is not a constant", "grid(n, 40, 12)"),
    ("matmul", "s.parallel(i)", "s.unroll(i)", "its extent is not a constant", "parallel(n)"),
    ("matmul", "s.vectorize(s.reorder(k, j) or j)", "s.unroll(j)", "it is vector, not serial", "vector(40)"),
    ("matmul", "", "s.vectorize(j)", "there are loops inside of it", "grid(n, 40, 12)"),
    ("matmul", "", "s.vectorize(k)", "`k` feeds a reduction iterator of block `c`", 'block("c", "SSR"'),
    ("scan", "", "s.vectorize(j)", "`j` feeds an ordered iterator of block `out`", 'block("out", "SO"'),
    ("matmul", "", "s.parallel(k)", "`k` feeds a reduction iterator", "grid(n, 40, 12)"),
    ("matmul", "s.parallel(i)", "s.parallel(j)", "loop `i` is parallel already", "parallel(n)"),
    ("matmul", "s.unroll(j)", "s.parallel(k)", "loop `j` is unroll already", "unroll(40)"),
    ("chain", "", "s.compute_inline('out')", "a parameter of the program", 'block("out", "SS"'),
    ("softmax", "", "s.compute_inline('total')", "not one store over S iterators", 'block("total", "SR"'),
    ("chain", "s.split(i, 4)", "s.compute_inline('t')", "it has a predicate", 'block("t", "SS"'),
    ("epilogue", "", "s.reverse_compute_inline('d')", "an epilogue is applied after the reduction, not in it", 'block("d", "SS"'),
    ("matmul", "", "s.reverse_compute_inline('c')", "not one store over S iterators", 'block("c", "SSR"'),
    ("softmax", "", "s.reverse_compute_inline('out')", "others read `e` too", 'block("out", "SS"'),
    ("chain", "", "s.decompose_reduction('t', i)", "it has no init", 'block("t", "SS"'),
    ("matmul", "s.reorder(k, j)", "s.decompose_reduction('c', j)", "loop `k` outside of it feeds a reduction iterator", "grid(n, 12, 40)"),
    ("softmax", "", "s.decompose_reduction('total', i)", "is not around block `total`", "grid(n, m)"),
    ("chain", "", "s.begin_reduction('t', i)", "no reduction with a named combiner and an init", 'block("t", "SS"'),
    ("softmax", "", "s.begin_reduction('top', s.loops('top')[1])", "its init is not f32(-inf)", 'block("top", "SR"'),
    ("softmax", "", "s.begin_reduction('total', s.loops('total')[1])", "there may be none", "grid(n, m)"),
    ("matmul", "o, p = s.split(k, 4)", "s.begin_reduction('c', o)", "loop `k_0` alone does not make its", 'block("c", "SSR"'),
    ("matmul_i32", "", "s.contract('c')", "not a sum of products of floats", 'block("c", "SSR"'),
    ("softmax", "", "s.contract('total')", "not a sum of products of floats", 'block("total", "SR"'),
    ("matmul", "s.annotate('c', 'contract', False)", "s.contract('c')", "annotated contract=False", 'block("c", "SSR"'),
    ("matmul", "", "s.sum_in_parts('c', j)", "loop `j` does not feed reduction iterators alone", "grid(n, 40, 12)"),
    ("columns", "", "s.sum_in_parts('out', s.loops('out')[1])", "it is no sum or product with an init", 'block("out", "SR"'),
    ("matmul", "", "s.sum_in_parts('c', k, scope='shared')", "scopes are workspace, stack and register", 'block("c", "SSR"'),
    ("matmul", "", "s.rfactor('c', j)", "does not feed reduction iterators alone", "grid(n, 40, 12)"),
    ("matmul_i32", "", "s.rfactor('c', k)", "its extent is not a constant", "grid(n, m, p)"),
    (
        "matmul",
        "s.decompose_reduction('c', k)",
        "s.rfactor('c', k)",
        "not one reduction with its init",
        'block("c", "SSR"',
    ),
    ("matmul", "", "s.cache_write('c')", "has no constant size", 'block("c", "SSR"'),
    ("matmul", "s.reorder(k, i, j)", "s.cache_write('c', i)", "outside of the tile, feeds a reduction iterator", "grid(12, n, 40)"),
    ("matmul", "s.decompose_reduction('c', k)", "s.cache_write('c', j)", "neither one store nor one reduction", 'block("c", "SSR"'),
    ("matmul", "", "s.cache_read('c', 'z', i)", "it does not read it", 'block("c", "SSR"'),
    ("matmul", "", "s.cache_read('c', 'a')", "has no constant size", 'block("c", "SSR"'),
    ("matmul", "", "s.cache_read('c', 'b', i, dtype='bf16')", "values of f32 that it does not hold", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex('c', 'a', dtype='i64')", "values of f32 that it does not hold", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex('c', 'c', dtype='f64')", "it is a result", 'block("c", "SSR"'),
    ("matmul", "", "s.cache_read('c', 'b', i, order=(0, 0))", "no permutation of its 2 dimensions", 'block("c", "SSR"'),
    ("scan", "", "s.cache_read('out', 'out', i)", "block `out` writes it there", 'block("out", "SO"'),
    ("chain", "", "s.set_scope('t', 'x', 'stack')", "a parameter of the program", 'block("t", "SS"'),
    ("chain", "", "s.set_scope('t', 't', 'stack')", "its size is not a constant", 'block("t", "SS"'),
    ("chain", "", "s.set_scope('t', 't', 'global')", "scopes are workspace, stack and register", 'block("t", "SS"'),
    ("matmul", "", "s.loop_partition(k, None, 12)", "nothing would be left for the piece None", "grid(n, 40, 12)"),
    ("matmul", "", "s.loop_partition(k, 4, 4)", "they are 8 iterations together", "grid(n, 40, 12)"),
    ("matmul", "", "s.loop_partition(i, 4, 4)", "they are 8 iterations together", "grid(n, 40, 12)"),
    ("matmul", "", "s.loop_partition(k, None, 4, None)", "two or more positive numbers are expected", "grid(n, 40, 12)"),
    ("chain", "", "s.compact('t', 'x', i)", "it is a parameter of the program", 'block("t", "SS"'),
    ("chain", "", "s.compact('t', 't', i)", "block `u` uses it outside of the loop", 'block("u", "SS"'),
    (
        "chain",
        "s.compute_at('t', s.loop('u', 'vi'))",
        "s.compact('u', 't', s.loop('u', 'vi'), 'stack')",
        "would be no constant",
        "range(n)",
    ),
    (
        "chain",
        "s.compute_at('t', s.loop('u', 'vj'))",
        "s.compact('u', 'u', s.loop('u', 'vi'))",
        "block `out` uses it outside",
        'block("out"',
    ),
    ("matmul", "", "s.reindex_cache_read('c', 'c', lambda i, j, k: (j, i))", "it writes it", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex_cache_read('c', 'b', lambda i, j, k: (i, j, k))", "iterator `vi` does not index it", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex_cache_read('c', 'b', lambda i, j, k: (j,))", "would come to the same place", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex_cache_read('c', 'b', lambda j, k: (j, k))", "block `c` has 3 iterators", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex_cache_write('c', 'b', lambda i, j, k: (j, k))", "it reads it", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex_cache_write('c', 'c', lambda i, j, k: (j, i), 'stack')", "would be no constant", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex_cache_write('c', 'c', lambda i, j, k: (j, i, k))", "`vk` does not index it", 'block("c", "SSR"'),
    ("stencil", "", "s.rolling_buffer('t', s.loops('out')[0])", "it is not one store at S iterators", 'block("t", "SR"'),
    ("chain", "", "s.rolling_buffer('t', s.loops('u')[0])", "windows of 1 in steps of 1 do not overlap", "grid(n, m)"),
    ("conv", "", "s.rolling_buffer('p', s.loops('out')[1])", "not an outermost serial loop", "grid(n, 5, 3, 3)"),
    ("matmul", "", "s.unannotate('c', 'hint')", "there is no such annotation", 'block("c", "SSR"'),
    ("matmul", "s.annotate(k, 'hint', 1)", "s.unannotate(k, 'note')", "cannot remove 'note' from loop `k`", "serial(12, hint=1)"),
    ("chain", "s.annotate('t', 'hint', 1); s.unannotate('t', 'hint')", "s.unannotate('t', 'hint')", "such annotation", 'block("t", "SS"'),
    ("chain", "s.vectorize(j)", "s.add_unit_loop('t')", "inside of vector loop `j`", "vector(m)"),
    ("matmul", "s.reorder(k, j); s.vectorize(j)", "s.add_unit_loop('c')", "inside of vector loop `j`", "vector(40)"),
    ("transpose", "s.vectorize(j)", "s.add_unit_loop('out')", "inside of vector loop `j`", "vector(n)"),
    ("softmax", "", "s.widen('total', 'f16')", "f16 is no wider float than f32", 'block("total", "SR"'),
    ("softmax", "", "s.widen('total', 'i64')", "i64 is no wider float than f32", 'block("total", "SR"'),
    ("matmul", "", "s.widen('c')", "its result `c` is a parameter of the program", 'block("c", "SSR"'),
    ("softmax", "", "s.widen('total', buffer=False)", "a reduction, which holds its sum in its buffer", 'block("total", "SR"'),
    ("chain", "", "s.widen('out')", "its result `out` is a parameter of the program", 'block("out", "SS"'),
    ("softmax", "s.annotate('total', 'reassociate', False)", "s.widen('total')", "annotated reassociate=False", 'block("total", "SR"'),
    ("chain", "", "s.compute_at('out', i)", "the loop comes before it", "grid(n, m)"),
    ("chain", "", "s.compute_at('t', i)", "it is inside of it already", "grid(n, m)"),
    ("softmax", "", "s.compute_at('e', s.loops('total')[0])", "block `out` reads `e` outside of it", 'block("out", "SS"'),
    ("stencil", "", "s.compute_at('t', s.loops('out')[0])", "would not be independent", 'block("t", "SR"'),
    ("chain", "", "s.reverse_compute_at('t', s.loops('out')[0])", "the loop comes after it", "grid(n, m)"),
    ("chain", "", "s.reverse_compute_at('out', i)", "nothing in the loop writes what it reads", "grid(n, m)"),
    ("epilogue", "s.reorder(k, i)", "s.reverse_compute_at('d', k)", "the reduction of block `c` goes on", "grid(12, 40, n)"),
    ("matmul", "", "s.transform_layout('b', lambda k, n: (n,))", "different elements would come to the same place", 'block("c", "SSR"'),
    ("matmul", "", "s.transform_layout('b', lambda k, n: (k, n * 2))", "leaves gaps between the elements", 'block("c", "SSR"'),
    ("matmul", "", "s.transform_layout('b', lambda k: (k,))", "it takes 1 coordinates, not 2", 'block("c", "SSR"'),
    ("matmul_i32", "", "s.transform_layout('b', lambda k, n: (n // 3, k, n % 3), 0.5)", "0.5 is no value of i32", 'block("c", "SSR"'),
    ("matmul", "", "s.transform_layout('z', lambda k, n: (n, k), block='c')", "there is no such buffer", 'block("c", "SSR"'),
    ("matmul", "", "s.transform_block_layout('c', lambda i, j, k: (i, j * 12 + k))", "iterators of several kinds", 'block("c", "SSR"'),
    ("matmul", "", "s.transform_block_layout('c', lambda i, j, k: (i // 4, i % 4, j, k))", "an extent is no multiple", "grid(n, 40, 12)"),
    ("matmul", "s.split(j, 4)", "s.transform_block_layout('c', lambda i, j, k: (j, i, k))", "`vj` is not a loop of its own", 'block("c"'),
    ("scan", "", "s.transform_block_layout('out', lambda i, j: (j, i))", "iterator `vj` is ordered", 'block("out", "SO"'),
    ("matmul", "", "s.transform_block_layout('c', lambda i, j, k: (i, j))", "would come to the same place", "grid(n, 40, 12)"),
    ("matmul", "", "s.reindex('c', 'a', scope='stack')", "its size would be no constant", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex('c', 'z')", "it does not use it", 'block("c", "SSR"'),
    ("matmul", "s.decompose_reduction('c', k)", "s.reindex('c', 'c')", "continues a reduction that others have begun", 'block("c", "SSR"'),
    ("stencil", "", "s.reindex('out', 't')", "it uses it at 2 places, not at one", 'block("out", "S"'),
    ("chain", "s.reverse_compute_at('u', i)", "s.reindex('u', 't')", "block `t` in the same loops uses it too", 'block("t", "SS"'),
    ("matmul", "", "s.pad('c', 4)", "a positive number for each iterator is expected", 'block("c", "SSR"'),
    ("matmul", "", "s.pad('c', 1, 8, 4)", "every extent is a multiple already", "grid(n, 40, 12)"),
    ("chain", "", "s.pad('t', 4, 4)", "it is not a sum with its init", 'block("t", "SS"'),
    ("conv", "", "s.pad('out', 4, 4, 1, 1)", "`p` is not indexed by its iterators", 'block("out", "SSRR"'),
    ("rms_norm", "", "s.pad('ss', 4, 1, 1)", "a positive number for each iterator is expected", 'block("ss", "SR"'),
    ("softmax", "", "s.pad('top', 4, 1)", "it is not a sum with its init", 'block("top", "SR"'),
    ("chain", "", "s.decompose_padding('t')", "does not store select(condition, value, constant)", 'block("t", "SS"'),
    ("conv", "s.split(s.loops('p')[0], 4)", "s.decompose_padding('p')", "does not store select", 'block("p", "SS"'),
    ("scan", "", "s.decompose_padding('out')", "does not store select", 'block("out", "SO"'),
    ("chain", "", "s.blockize('t', 'out')", "block `u` stands in the same loops", 'block("u", "SS"'),
    ("chain", "s.parallel(i)", "s.blockize('t', 'u')", "loop `i` is parallel", "parallel(n)"),
    ("matmul", "s.reorder(k, j); s.split(j, 16, tail='cut')", "s.blockize('c', 'c_rest')", "runs before loop `k`", "grid(n, 12)"),
    ("matmul", "o, p = s.split(j, 16); s.reorder(i, p, o)", "s.blockize(o)", "does not go on in steps of", 'block("c", "SSR"'),
    ("matmul", "s.parallel(i)", "s.blockize(i)", "loop `i` is parallel", "parallel(n)"),
    ("matmul", "o, p = s.split(j, 8); s.blockize(p)", "s.cache_write('c', i)", "it is inside of block `c_o`", 'block("c", "SSR"'),
    ("matmul", "o, p = s.split(j, 8); s.blockize(p)", "s.cache_read('c_o', 'b', i)", "block `c` is inside of it", 'block("c_o"'),
    (
        "matmul",
        "o, p = s.split(j, 8); s.reorder(o, k, p)",
        "s.tensorize(p, 'fma.f32x8')",
        "it combines by add, the instruction by fma",
        "grid(",
    ),
    (
        "matmul",
        "o, p = s.split(j, 8); s.reorder(o, k, p)",
        "s.tensorize(p, 'fma.f32x4')",
        "its loops are S 8, the instruction's are S 4",
        "grid(",
    ),
    (
        "matmul",
        "s.contract('c'); o, p = s.split(j, 8); s.reorder(o, k, p)",
        "s.tensorize(p, 'fma')",
        "there is no such instruction",
        "grid(",
    ),
    (
        "matmul",
        "s.contract('c'); o, p = s.split(j, 8); s.reorder(o, k, p); s.transform_layout('b', lambda k, n: (n, k))",
        "s.tensorize(p, 'fma.f32x8')",
        "do not lie 1 apart in memory",
        "grid(",
    ),
    ("matmul", "s.contract('c')", "s.tensorize(j, 'fma.f32x8')", "it is not loops around one block without init", "grid("),
]


@pytest.mark.parametrize(("name", "before", "call", "message", "underlined"), REFUSALS)
def test_refusal(name: str, before: str, call: str, message: str, underlined: str) -> None:
    s = Schedule(kernel(name))
    first = kernel(name).body
    block = s.program and next(b for b in ("c", "t", "top", "ss", "out") if f'block("{b}"' in str(s.program))
    names = {"s": s, **dict(zip("ijk", s.loops(block), strict=False))}
    exec(before, names)
    trace, program = str(s.trace), s.program
    with pytest.raises(ScheduleError) as caught:
        eval(call, names)
    text = str(caught.value)
    assert message in caught.value.what
    lines = text.splitlines()
    marked = [lines[n - 1] for n, line in enumerate(lines) if "^" in line and "   | " in line]
    assert any(underlined in line for line in marked), text
    assert "pliant/schedule" not in text and "Traceback" not in text
    assert s.program is program and first is kernel(name).body
    assert str(s.trace).startswith(trace)


def test_every_primitive_is_refused_in_three_ways() -> None:
    """What a new primitive must not do is tested with it; annotations are always legal."""
    tried = Counter(re.findall(r"s\.(\w+)\(", call)[0] for _, _, call, _, _ in REFUSALS)
    made = {name: getattr(method, "__wrapped__", None) for name, method in vars(Schedule).items()}
    primitives = {name for name, fn in made.items() if fn is not None and "primitives" in fn.__module__}
    assert len(primitives) > 20 and {name for name in primitives if tried[name] < 3} == {"annotate"}


def test_the_callers_line_is_shown() -> None:
    s = Schedule(kernel("matmul"))
    i, _, _ = s.loops("c")
    with pytest.raises(ScheduleError) as caught:
        s.split(i, 0)
    assert "test_schedule_errors.py" in str(caught.value) and "s.split(i, 0)" in str(caught.value)


def test_a_dead_handle_says_why() -> None:
    s = Schedule(kernel("chain"))
    t = s.block("t")
    i, _ = s.loops("t")
    s.compute_inline(t)
    for h in (t, i):
        assert not h.alive
    with pytest.raises(ScheduleError, match="`i` is no longer part of the program: block `t` was inlined"):
        s.split(i, 4)


def test_wrong_kinds_of_arguments() -> None:
    s = Schedule(kernel("matmul"))
    i, j, _ = s.loops("c")
    with pytest.raises(ScheduleError, match="`c` is a block where a loop is expected"):
        s.split(s.block("c"), 4)
    with pytest.raises(ScheduleError, match="`i` is a loop where a block is expected"):
        s.compute_inline(i)
    with pytest.raises(ScheduleError, match="a loop is expected, not 'i'"):
        s.split("i", 4)
    with pytest.raises(ScheduleError, match="missing a required argument"):
        s.decompose_reduction("c")
    with pytest.raises(ScheduleError, match="there is no block `d`"):
        s.contract("d")
    with pytest.raises(ScheduleError, match="only loop programs can be scheduled, not str"):
        Schedule("matmul")
    with pytest.raises(ScheduleError, match="belongs to another schedule"):
        Schedule(kernel("matmul")).reorder(j, i)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 1, "entries": [{"op": 3}]}', '{"version": 99, "entries": []}'])
def test_a_broken_trace(text: str) -> None:
    with pytest.raises(ModelFileError):
        Trace.from_json(text)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('{"op": "_advance", "args": [], "kwargs": {}, "results": []}', "which is no primitive"),
        ('{"op": "nothing", "args": [], "kwargs": {}, "results": []}', "which is no primitive"),
        ('{"op": "unroll", "args": [{"handle": 3, "name": "k"}], "kwargs": {}, "results": []}', "uses `k` before it is made"),
        ('{"op": "unroll", "args": [{"value": 3, "name": "t"}], "kwargs": {}, "results": []}', "uses `t` before it is made"),
    ],
)
def test_a_trace_that_calls_something_else(entry: str, message: str) -> None:
    trace = Trace.from_json(f'{{"version": 1, "entries": [{entry}]}}')
    with pytest.raises(ModelFileError, match=message):
        trace.apply(kernel("matmul"))


def test_a_trace_of_another_program() -> None:
    s = Schedule(kernel("matmul"))
    s.unroll(s.loops("c")[2])
    with pytest.raises(ScheduleError, match="there is no block `c`"):
        s.trace.apply(kernel("chain"))


MISTAKES = {
    's.cache_read("u", "t", j, scope="shared")': "scopes are workspace, stack and register, not 'shared'",
    's.cache_write("u", j, scope="shared")': "scopes are workspace, stack and register, not 'shared'",
    's.reindex("u", "t", scope="shared")': "scopes are workspace, stack and register, not 'shared'",
    's.cache_read("u", "t", j, order=5)': "order 5 is no permutation of its 2 dimensions",
    's.cache_read("u", "t", j, order=([0], 1))': "order ([0], 1) is no permutation of its 2 dimensions",
    's.cache_read("u", "t", j, dtype="f99")': "`f99` is not a data type",
    "s.parallel(i, grain=0)": "cannot hand out 0 iterations of loop `i` together",
    "s.parallel(i, grain=2.5)": "cannot hand out 2.5 iterations of loop `i` together",
    "s.parallel(i, grain='x')": "cannot hand out 'x' iterations of loop `i` together",
    "s.parallel(i, grain=s.program.symbols[0])": "iterations of loop `i` together",
    "s.annotate(i, 'grain', 0)": "cannot hand out 0 iterations of loop `i` together",
    "s.annotate(i, 'hint', object())": "an annotation is a number, a text, or a tuple of these",
    "s.annotate('u', 'hint', (1, [2]))": "an annotation is a number, a text, or a tuple of these",
    "s.annotate('u', 'hint', float('nan'))": "an annotation is a number, a text, or a tuple of these",
    "s.annotate('u', 3, 4)": "the name of an annotation is a text, not 3",
    "s.split(i, True)": "cannot split loop `i` by True",
    "s.split(i, 2**70)": "no loop is that long",
    "s.split(None, 4)": "a loop is expected, not None",
    "s.fuse(1, 2)": "a loop is expected, not 1",
    "s.reorder(i, 3)": "a loop is expected, not 3",
    "s.parallel(5)": "a loop is expected, not 5",
    "s.cache_write('u', 5)": "a loop is expected, not 5",
    "s.compute_at(5, i)": "a block is expected, not 5",
    "s.loops(5)": "a block is expected, not 5",
    "s.annotate(5, 'hint', 1)": "a loop or a block is expected, not 5",
    "s.transform_layout('t', 5)": "an index map is a function or its text, not 5",
    "s.transform_layout('t', lambda a, b: (b, a), 'x')": "'x' is no value of f32",
    "s.sample_tile(i, 'x')": "the number of parts is a whole number, not 'x'",
    "s.sample_categorical(5)": "sample_categorical chooses among numbers and texts",
    "s.sample_categorical((1, 2), ('a', 'b'))": "probabilities are numbers",
}


@pytest.mark.parametrize("call", MISTAKES)
def test_wrong_values_of_arguments(call: str) -> None:
    s = Schedule(kernel("chain"))
    i, j = s.loops("u")
    with pytest.raises(ScheduleError) as refused:
        eval(call, {"s": s, "i": i, "j": j})
    assert MISTAKES[call] in refused.value.what
    assert str(refused.value)


def test_numbers_of_numpy_are_numbers() -> None:
    s = Schedule(kernel("chain"))
    s.split(s.loops("u")[0], np.int64(4))
    s.annotate("u", "hint", np.float32(2.5))
    assert_same(Trace.from_json(s.trace.to_json()).apply(kernel("chain")), s.program)
