"""Mistakes in kernels: the message, the place of the caret, the way out, and that nothing of Pliant's own shows.

Each case is the body of a kernel file with the caret's range between « and ». It is written to a file and run, as a user would.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pliant
from pliant.loop.parse import parse_kernel
from pliant.loop.stmt import Func
from pliant.loop.verify import verify
from pliant.support.errors import Error

HEAD = """\
from pliant import (
    InOut, Out, Tensor, alloc, annotate, bitcast, block, cast, check, combine, dim, exp, f32, f64, fma, gpu, grid, i32, i64, init,
    parallel, reads, select, sqrt, strides, u8, unroll, vector, view, where, writes,
)
import math
n = dim("n", max=4096)
m = dim("m")
"""


class Case(NamedTuple):
    """A file with a mistake: its text, the first line of the message, and a part of the help (or of a fact)."""

    source: str
    what: str
    help: str


def kernel(signature: str, *body: str) -> str:
    """A kernel with this signature and these lines."""
    return "\n".join([f"@kernel\ndef k({signature}) -> None:", *(f"    {line}" for line in body)])


X = "x: Tensor[f32, n], y: Out[f32, n]"
MATRIX = "a: Tensor[f32, n, 8], c: Out[f32, n]"

CASES: dict[str, Case] = {
    "undefined_name": Case(
        kernel(X, "for i in range(n):", "    y[i] = x[i] * «scael»"),
        "`scael` is not defined",
        "names come from the function itself",
    ),
    "misspelt_name": Case(
        kernel(X, "for idx in range(n):", "    y[idx] = x[«idxx»]"),
        "`idxx` is not defined",
        "did you mean `idx`?",
    ),
    "wrong_rank": Case(
        kernel(MATRIX, "for i in range(n):", "    c[i] = «a[i]»"),
        "`a` has 2 dimensions, 1 index given",
        "`a: f32[n, 8]`",
    ),
    "wrong_dtype": Case(
        kernel("x: Tensor[f32, n], k: Tensor[i32, n], y: Out[f32, n]", "for i in range(n):", "    y[i] = «x[i] + k[i]»"),
        "the operands have different types: f32 and i32",
        "write cast(f32, k[i])",
    ),
    "wrong_dtype_stored": Case(
        kernel("k: Tensor[i32, n], y: Out[f32, n]", "for i in range(n):", "    y[i] = «k[i]»"),
        "f32 is expected here, not i32",
        "write cast(f32, k[i])",
    ),
    "float_index": Case(
        kernel(X, "for i in range(n):", "    y[i] = x[«x[i]»]"),
        "an integer is expected here, not f32",
        "write cast(i64, x[i])",
    ),
    "store_to_input": Case(
        kernel(X, "for i in range(n):", "    y[i] = 0.0", "    «x»[i] = 1.0"),
        "`x` is an input and cannot be written",
        "Out[...] (written only) or InOut[...]",
    ),
    "reduce_into_input": Case(
        kernel(X, "for i in range(n):", "    y[i] = 0.0", "    «x[i]» += 1.0"),
        "`x` is an input and cannot be written",
        "Out[...] (written only) or InOut[...]",
    ),
    "out_of_range": Case(
        kernel(X, "for i in range(n):", "    «y[i] = x[i + 1]»"),
        "`x[i + 1]` is out of range",
        "for n = 1, i = 0: `i + 1` is 1, the extent is 1",
    ),
    "out_of_range_below": Case(
        kernel(X, "for i in range(n):", "    «y[i - 1] = x[i]»"),
        "`y[i - 1]` is out of range",
        "for n = 1, i = 0: `i - 1` is -1, the extent is 1",
    ),
    "out_of_range_other_dim": Case(
        kernel("x: Tensor[f32, n], y: Out[f32, m]", "for i in range(m):", "    «y[i] = x[i]»"),
        "`x[i]` is out of range",
        "for n = 1, m = 2, i = 1: `i` is 1, the extent is 1",
    ),
    "out_of_range_constant": Case(
        kernel(MATRIX, "for i in range(n):", "    c[i] = a[i, «8»]"),
        "index 8 of `a` is out of range",
        "the extent is 8",
    ),
    "negative_index": Case(
        kernel(X, "for i in range(n):", "    y[i] = x[«-1»]"),
        "index -1 of `x` is negative",
        "none counts from the end",
    ),
    "unknown_call": Case(
        kernel(X, "for i in range(n):", "    y[i] = «math.exp»(x[i])"),
        "`math.exp` cannot be called here",
        "from pliant import exp",
    ),
    "unknown_call_statement": Case(
        kernel(X, "for i in range(n):", "    «print»(i)"),
        "`print` is a Python builtin, and not part of this language",
        "cannot call Python functions such as print",
    ),
    "builtin_value": Case(
        kernel(X, "for i in range(n):", "    y[i] = «sum»(x)"),
        "`sum` is a Python builtin, and not part of this language",
        "cannot call Python functions such as sum",
    ),
    "python_function": Case(
        "def double(v):\n    return 2 * v\n" + kernel(X, "for i in range(n):", "    y[i] = «double»(x[i])"),
        "`double` cannot be called here",
        "it can call another kernel: write it with @kernel",
    ),
    "python_type": Case(
        kernel(X, "for i in range(n):", "    y[i] = «float»(x[i])"),
        "`float` cannot be called here",
        "write cast(f32, x[i])",
    ),
    "shape_of_vector": Case(
        kernel(X, "for i in range(«x.shape»[0]):", "    y[i] = x[i]"),
        "kernels have no `.shape`",
        "use the dim of `x`: `n`",
    ),
    "shape_of_matrix": Case(
        kernel(MATRIX, "for i in range(«a.shape»[0]):", "    c[i] = a[i, 0]"),
        "kernels have no `.shape`",
        "use the dims of `a`: `n`, `8`",
    ),
    "length": Case(
        kernel(X, "for i in range(«len(x)»):", "    y[i] = x[i]"),
        "kernels have no `len`",
        "use the dim of `x`: `n`",
    ),
    "other_attribute": Case(
        kernel(MATRIX, "for i in range(n):", "    c[i] = «a.T»[0, i]"),
        "kernels have no `.T`",
        "`a: f32[n, 8]` is all that is known of it",
    ),
    "text_dtype": Case(
        "from __future__ import annotations\n"
        + kernel('x: Tensor[«"floot32"», n], y: Out[f32, n]', "for i in range(n):", "    y[i] = x[i]"),
        "`floot32` is not a data type",
        "did you mean `float32`",
    ),
    "block_values_and_kinds": Case(
        kernel(X, "for i in range(n):", '    with «block("b", "SS", i)» as vi:', "        y[vi] = x[vi]"),
        'block `b` has 2 kinds "SS" for 1 value',
        "one letter for each value",
    ),
    "block_names": Case(
        kernel(X, "for i in range(n):", '    with block("b", "S", i) as («vi, vj»):', "        y[vi] = x[vi]").replace(
            "(«vi, vj»)", "«(vi, vj)»"
        ),
        "block `b` has 1 iterator, 2 names given",
        "",
    ),
    "block_kind": Case(
        kernel(X, "for i in range(n):", '    with block("b", «"X"», i) as vi:', "        y[vi] = x[vi]"),
        'there is no kind of iterator "X"',
        "S is spatial, R reduction, O ordered",
    ),
    "loop_variable_in_block": Case(
        kernel(X, "for i in range(n):", '    with block("b", "S", i) as vi:', "        y[vi] = x[«i»]"),
        "`i` cannot be used inside block `b`",
        'block("b", "S", i) as vi',
    ),
    "init_outside_block": Case(
        kernel(X, "for i in range(n):", "    with «init()»:", "        y[i] = 0.0"),
        "`init` stands at the beginning of a block, before other statements",
        "",
    ),
    "init_after_body": Case(
        kernel(
            MATRIX,
            "for i, k in grid(n, 8):",
            '    with block("c", "SR", i, k) as (vi, vk):',
            "        c[vi] += a[vi, vk]",
            "        with «init()»:",
            "            c[vi] = 0.0",
        ),
        "`init` stands at the beginning of a block, before other statements",
        "",
    ),
    "reduction_iterator_in_init": Case(
        kernel(
            MATRIX,
            "for i, k in grid(n, 8):",
            '    with block("c", "SR", i, k) as (vi, vk):',
            "        with init():",
            "            c[vi] = a[vi, «vk»]",
            "        c[vi] += a[vi, vk]",
        ),
        "`vk` is no S iterator, and unknown in init",
        "before the first step",
    ),
    "where_after_body": Case(
        kernel(X, "for i in range(n):", '    with block("b", "S", i) as vi:', "        y[vi] = x[vi]", "        «where(vi < 4)»"),
        "`where` stands at the beginning of a block, before other statements",
        "",
    ),
    "assigned_loop_variable": Case(
        kernel(X, "for i in range(n):", "    «i» = 3", "    y[i] = 0.0"),
        "`i` is already defined and does not change",
        "it is the loop variable of line 10",
    ),
    "reassigned_let": Case(
        kernel(X, "for i in range(n):", "    t = x[i]", "    «t» = t * 2.0", "    y[i] = t"),
        "`t` is already defined and does not change",
        "use a buffer: t = alloc((1,), f32)",
    ),
    "augmented_let": Case(
        kernel(X, "s = 0.0", "for i in range(n):", "    «s» += x[i]", "    y[i] = s"),
        "`s` is already defined and does not change",
        "use a buffer: s = alloc((1,), f32)",
    ),
    "name_of_an_ended_scope": Case(
        kernel(X, "for i in range(n):", "    t = x[i]", "for i in range(n):", "    y[i] = «t»"),
        "`t` is not defined any more",
        "it is the value of line 11",
    ),
    "missing_annotation": Case(
        "@kernel\ndef k(x: Tensor[f32, n], «y») -> None:\n    pass",
        "parameter `y` has no annotation",
        "for example y: Tensor[f32, n], or y: f32 for a scalar",
    ),
    "wrong_annotation": Case(
        "@kernel\ndef k(x: «float») -> None:\n    pass",
        "`float` is no annotation of a parameter",
        "for example Tensor[f32, n]",
    ),
    "text_extent": Case(
        'from __future__ import annotations\n@kernel\ndef k(x: Tensor[f32, «"q"»]) -> None:\n    pass',
        'an extent is a dim or an integer, not the text "q"',
        'declare it first: q = dim("q")',
    ),
    "return_value": Case(
        kernel(X, "for i in range(n):", "    y[i] = x[i]", "«return y»"),
        "a kernel has no `return` statement",
        "annotate one with Out[...]",
    ),
    "return_annotation": Case(
        "@kernel\ndef k(x: Tensor[f32, n]) -> «Tensor[f32, n]»:\n    pass",
        "a kernel returns nothing: it is annotated with `-> None`",
        "results are parameters",
    ),
    "try_statement": Case(
        kernel(X, "«try:»", "    y[0] = x[0]", "except ValueError:", "    pass"),
        "a kernel has no `try` statement",
        "",
    ),
    "class_statement": Case(
        kernel(X, "«class A:»", "    pass"),
        "a kernel has no `class` statement",
        "",
    ),
    "assert_statement": Case(
        kernel(X, "«assert n > 3»"),
        "a kernel has no `assert` statement",
        'use check(condition, "message")',
    ),
    "break_statement": Case(
        kernel(X, "for i in range(n):", "    y[i] = x[i]", "    «break»"),
        "a kernel has no `break` statement",
        "while loop",
    ),
    "wrong_keyword": Case(
        kernel(X, 't = alloc((4,), f32, «scop="stack"»)'),
        "`alloc` has no keyword `scop`",
        "did you mean `scope`?",
    ),
    "wrong_scope": Case(
        kernel(X, 't = alloc((4,), f32, scope=«"heap"»)'),
        'there is no scope "heap"',
        "workspace, stack, register",
    ),
    "stack_without_constant_size": Case(
        kernel(X, '«t = alloc((n,), f32, scope="stack")»'),
        "`t` in scope stack has no constant size",
        "allocate in the workspace",
    ),
    "loop_over_float": Case(
        kernel(X, "for i in range(«x[0]»):", "    y[i] = 0.0"),
        "an integer is expected here, not f32",
        "write cast(i64, x[0])",
    ),
    "loop_over_literal_float": Case(
        kernel(X, "for i in range(«1.5»):", "    y[i] = 0.0"),
        "i64 is expected here, not the number 1.5",
        "write a whole number",
    ),
    "loop_over_tensor": Case(
        kernel(X, "for v in «x»:", "    y[0] = v"),
        "a loop cannot run over `x`",
        "loops run over range(n)",
    ),
    "loop_with_step": Case(
        kernel(X, "for i in «range(0, n, 2)»:", "    y[i] = 0.0"),
        "`range` takes one or two bounds, not 3",
        "there is no step",
    ),
    "grid_names": Case(
        kernel(X, "for «i, j» in grid(n, 4, 4):", "    y[i] = 0.0"),
        "3 loop variables are expected for `grid(n, 4, 4)`, not 2",
        "",
    ),
    "integer_division": Case(
        kernel("k: InOut[i32, n]", "for i in range(n):", "    k[i] = «k[i] / 2»"),
        "`/` divides floats, not i32",
        "`//` divides integers and rounds down",
    ),
    "literal_too_large": Case(
        kernel("k: Out[u8, n]", "for i in range(n):", "    k[i] = «300»"),
        "300 does not fit u8",
        "u8 holds 0..255",
    ),
    "condition_not_bool": Case(
        kernel(X, "for i in range(n):", "    if «x[i]»:", "        y[i] = 0.0"),
        "bool is expected here, not f32",
        "write x[i] != 0",
    ),
    "function_of_integers": Case(
        kernel("k: Tensor[i32, n], y: Out[f32, n]", "for i in range(n):", "    y[i] = «sqrt(k[i])»"),
        "`sqrt` is a function of floats, not i32",
        "write sqrt(cast(f32, k[i]))",
    ),
    "tensor_as_number": Case(
        kernel(X, "for i in range(n):", "    y[i] = «x» * 2.0"),
        "`x` is a tensor, a number is expected here",
        "take an element: x[i]",
    ),
    "unknown_dim": Case(
        kernel(X, "for i in range(«m»):", "    y[i] = 0.0"),
        "dim `m` is not known in this kernel",
        "m: i64",
    ),
    "read_before_write": Case(
        kernel(X, "for i in range(n):", "    «y[i] += x[i]»"),
        "`y` is read before anything is written to it",
        "with init()",
    ),
    "parallel_race": Case(
        kernel(MATRIX, "for i in parallel(n):", "    «c[0] = a[i, 0]»"),
        "every iteration of the parallel loop `i` writes the same place of `c`",
        "index with `i`",
    ),
    "parallel_reduction": Case(
        kernel(MATRIX, "for i in range(n):", "    c[i] = 0.0", "    for k in vector(8):", "        «c[i] += a[i, k]»"),
        "a reduction over the vector loop `k`",
        "make the loop over `k` serial",
    ),
    "dependent_bindings": Case(
        kernel("c: Out[f32, n, n]", "for i in range(n):", '    «with block("b", "SS", i, i) as (vi, vj)»:', "        c[vi, vj] = 0.0"),
        "the iterators of block `b` are not independent: `i` is used twice: the bindings depend on each other",
        "no other iterator uses",
    ),
    "bitcast_width": Case(
        kernel(X, "for i in range(n):", "    y[i] = «bitcast(f64, x[i])»"),
        "bitcast of f32 to f64: 32 bits are not 64 bits",
        "",
    ),
    "view_dtype": Case(
        kernel(X, "v = view(x[0], (n,), dtype=«i32»)"),
        "a view of f32 cannot be i32",
        "only u8 bytes",
    ),
    "combine_arguments": Case(
        kernel(X, "for i in range(n):", "    y[i] = 0.0", "    y[i] = combine(«lambda a: a», y[i], x[i])"),
        "the lambda takes 2 arguments: what it has, then what comes; not 1",
        "",
    ),
    "message_values": Case(
        kernel(X, 'check(n > 0, «"{0} and {1}"», n)'),
        "the message does not fit its 1 value",
        "{0} is the first value",
    ),
    "word_as_value": Case(
        kernel(X, "for i in range(n):", "    y[i] = «grid(3)»"),
        "`grid` is not a value: it cannot stand here",
        "",
    ),
    "call_without_dims": Case(
        kernel("x: Tensor[f32, n + 1], y: Out[f32, n + 1]", "y[0] = x[0]")
        + "\n@kernel\ndef j(x: Tensor[f32, 5], y: Out[f32, 5]) -> None:\n    «k(x, y)»",
        "dims of `k` do not follow from its arguments: n",
        "dims=(...)",
    ),
    "call_argument": Case(
        kernel(X, "for i in range(n):", "    y[i] = x[i]") + "\n@kernel\ndef j(x: Tensor[f64, 5], y: Out[f32, 5]) -> None:\n    k(«x», y)",
        "argument `x` does not fit",
        "expected: `x: f32[n]`",
    ),
    "call_contract": Case(
        kernel(X, "for i in range(n):", "    y[i] = x[i]") + "\n@kernel\ndef j(x: Tensor[f32, m], y: Out[f32, m]) -> None:\n    «k(x, y)»",
        "the call may break the contract of `k`: n in 0..4096",
        "check(m <= 4096",
    ),
    "call_overlap": Case(
        kernel(X, "for i in range(n):", "    y[i] = x[i]") + "\n@kernel\ndef j(y: InOut[f32, 5]) -> None:\n    «k(y, y)»",
        "`y` is passed to `k` twice, and written there",
        "must not overlap",
    ),
    "nothing_written": Case(
        "@kernel\n«def k(x: Tensor[f32, n], y: Out[f32, n]) -> None»:\n    pass",
        "nothing is written to the output `y`",
        "store to every element",
    ),
    "unicode_columns": Case(
        kernel(X, "for größe in range(n):", "    y[größe] = x[größe] + «ä»"),
        "`ä` is not defined",
        "",
    ),
}


def verified(fn: Callable[..., Any]) -> Func:
    """The decorator of these tests: parse and verify."""
    func = parse_kernel(fn)
    verify(func)
    return func


@pytest.mark.parametrize("name", CASES)
def test_error(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    future = "from __future__ import annotations\n"
    body = case.source.removeprefix(future)
    marked = (future if body != case.source else "") + HEAD + body
    line = next(k for k, text in enumerate(marked.splitlines(), 1) if "«" in text)
    shown = marked.splitlines()[line - 1]
    file = tmp_path / "user.py"
    file.write_text(marked.replace("«", "").replace("»", "") + "\n", encoding="utf-8")
    with pytest.raises(Error) as caught:
        runpy.run_path(str(file), init_globals={"kernel": verified})
    error = caught.value
    span = error.where
    assert span is not None
    assert str(error).splitlines()[0] == case.what
    assert (span.file, span.line) == (str(file), line)
    assert (span.column, span.end_column) == (shown.index("«"), shown.index("»") - 1)
    rest = "\n".join([*error.facts, error.help])
    assert case.help in rest
    assert str(Path(pliant.__file__).parent) not in str(error)
    assert ".py" not in str(error).replace(str(file), "")


def test_dtypes_of_other_libraries(tmp_path: Path) -> None:
    """A dtype may be given as text and as numpy's, with and without postponed annotations, and means the same."""
    body = """\
import numpy as np
from pliant import Out, Tensor, cast, dim, f32, function, kernel
n = dim("n")
@kernel
def k(x: Tensor["float32", n], y: Out[np.float64, n]) -> None:
    for i in range(n):
        y[i] = cast("float64", x[i])
@function
def f(x: Tensor["float32", n]) -> Tensor[np.float64, n]:
    return k(x)
"""
    for head in ("", "from __future__ import annotations\n"):
        file = tmp_path / "user.py"
        file.write_text(head + body)
        found = runpy.run_path(str(file))
        assert [p.value.dtype.name for p in found["k"].func.params] == ["f32", "f64"]
        assert str(found["f"].graph.params[0].annotation) == "Tensor[f32, n]"


def test_no_source() -> None:
    names: dict[str, Any] = {"kernel": verified, "Tensor": pliant.Tensor, "f32": pliant.f32}
    with pytest.raises(Error) as caught:
        exec("@kernel\ndef k(x: Tensor[f32, 3]) -> None:\n    pass\n", names)
    assert caught.value.what == "no source: the text of function `k` cannot be read"
    assert "exec(), `python -c`" in caught.value.help
    assert caught.value.facts == ["it was defined in <string>, line 1"]


def test_not_a_function() -> None:
    with pytest.raises(Error, match="a function written with `def` is expected here, not a lambda"):
        parse_kernel(lambda x: x)
    with pytest.raises(Error, match="a function written with `def` is expected here, not an object of type `int`"):
        parse_kernel(3)  # type: ignore[arg-type]


def test_word_outside_of_a_kernel() -> None:
    with pytest.raises(Error) as caught:
        pliant.grid(3, 4)
    error = caught.value
    assert error.what == "`grid` means something only inside a kernel"
    assert error.where is not None and error.where.file == __file__
    assert "@kernel" in error.help


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: pliant.dim("2n"), "a dim is named like a Python variable, not '2n'"),
        (lambda: pliant.dim("n", min=-1), "dim `n` cannot be negative: min is -1"),
        (lambda: pliant.dim("n", max=2**31), "dim `n` is too large: max is 2147483648"),
        (lambda: pliant.dim("n", multiple_of=0), "dim `n` cannot be a multiple of 0"),
        (lambda: pliant.dim("n", min=9, max=15, multiple_of=8), "dim `n` has no value: 9..15 step 8 is empty"),
        (lambda: pliant.dim("n", max=1.5), "`max` of a dim is an integer, not 1.5"),
        (lambda: pliant.Tensor[pliant.f32, "n"], 'an extent is a dim or an integer, not the text "n"'),
        (lambda: pliant.Tensor[pliant.f32, -1], "an extent is a dim or a non-negative integer, not -1"),
        (lambda: pliant.Tensor["floot32", 4], "`floot32` is not a data type"),
        (lambda: pliant.Tensor[3, 4], "Tensor[...] starts with a data type"),
        (lambda: pliant.Tensor[pliant.f32, 3, pliant.strides(4, 1)], "2 strides for 1 dimension"),
    ],
)
def test_dims_and_specs(make: Callable[[], object], what: str) -> None:
    with pytest.raises(Error) as caught:
        make()
    assert caught.value.what == what
    assert caught.value.where is not None and caught.value.where.file == __file__
