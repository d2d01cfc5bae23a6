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
from schedule_moves import REFUSALS


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
    "s.compute_at((), i)": "a block is expected, not ()",
    "s.split((i,), 4)": "a loop is expected, not (<loop i>,)",
    "s.fuse((i, j))": "a loop is expected, not (<loop i>, <loop j>)",
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
