"""Structural equality and hashes: what counts and what does not, and the path of the first difference."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pliant.dtype import f32, i64
from pliant.loop.buffer import Buffer, Load
from pliant.loop.parse import parse_module
from pliant.loop.stmt import For, Func, Param, Seq, Store
from pliant.loop.structural import assert_same, canonical_text, promoted_hash, same, structural_hash
from pliant.sym.expr import Const, Dim, Expr, Mul, Var, binary

TEXT = """
n = dim("n", max=4096)
m = dim("m")

@kernel
def helper(x: InOut[f32, n]) -> None:
    for i in range(n):
        x[i] *= 2.0

@kernel
def f(x: Tensor[f32, n, m], k: Tensor[i32, n], eps: f32, y: Out[f32, n], z: InOut[f32, n]) -> None:
    check(m > 0, "m is {0}", m, help="more columns")
    t = alloc((n, 4), f32)
    v = view(z[0], (n,))
    half = eps / 2.0
    for i, j in grid(n, m):
        with block("y", "SR", i, j) as (vi, vj):
            where(vj < 7)
            reads(x[vi, vj])
            annotate(keep=1)
            with init():
                y[vi] = 0.0
            y[vi] += x[vi, vj] * half
    for i in parallel(1, n, grain=8):
        if eps < 0.0:
            z[i] = min(z[i], y[i] + 1.0)
        else:
            z[i] = cast(f32, k[i])
    while z[0] < 4.0:
        z[0] += 1.0
    helper(v)
"""

# what is replaced, by what, and the path and the two sides that the difference is named by
DIFFERENCES = [
    ("max=4096", "max=4095", "function", "n in 0..4096", "n in 0..4095"),
    ("Tensor[i32, n]", "Tensor[i64, n]", "function", "k: i32[n] (in)", "k: i64[n] (in)"),
    ("z: InOut[f32, n]", "z: InOut[f32, m]", "function", "z: f32[n] (inout)", "z: f32[m] (inout)"),
    ("y: Out[", "y: InOut[", "function", "y: f32[n] (out)", "y: f32[n] (inout)"),
    ("m > 0", "m > 1", "body.0.condition", "0", "1"),
    ('"m is {0}"', '"m was {0}"', "body.0", "check m is {0}", "check m was {0}"),
    (
        "alloc((n, 4), f32)",
        'alloc((n, 4), f32, scope="workspace", strides=(4, 1))',
        "body.1",
        "alloc t: f32[n, 4] workspace",
        "1",
    ),
    ("view(z[0]", "view(z[1]", "body.2", "view v: f32[n] of z", "1"),
    ("half = eps / 2.0", "half = eps * 2.0", "body.3.value", "eps / 2.0", "eps * 2.0"),
    ('"SR"', '"SO"', "body.4.for i.for j", 'block y "SR"', 'block y "SO"'),
    ('block("y"', 'block("w"', "body.4.for i.for j", 'block y "SR"', 'block w "SR"'),
    ("vj < 7", "vj < 8", "body.4.for i.for j.where", "7", "8"),
    ("            reads(x[vi, vj])\n", "", "body.4.for i.for j", "reads: 1", "reads: derived"),
    ("keep=1", "keep=2", "body.4.for i.for j", "notes keep=1", "notes keep=2"),
    ("y[vi] = 0.0", "y[vi] = -0.0", "body.4.for i.for j.block y.init.value", "f32(0.0)", "f32(-0.0)"),
    ("y[vi] += x", "y[vi] *= x", "body.4.for i.for j.block y", "reduce add y", "reduce mul y"),
    ("parallel(1, n, grain=8)", "parallel(1, n, grain=4)", "body.5", "parallel loop i grain=8", "parallel loop i grain=4"),
    ("parallel(1, n, grain=8)", "vector(1, n, grain=8)", "body.5", "parallel loop i grain=8", "vector loop i grain=8"),
    ("z[i] = min(z[i], y[i] + 1.0)", "z[i] = +min(z[i], y[i] + 1.0)", "body.5.for i.if.value", "y[i]", "z[i]"),
    ("        else:\n            z[i] = cast(f32, k[i])\n", "", "body.5.for i", "if with else", "if"),
    ("while z[0]", "while z[1]", "body.6.condition", "z[0]", "z[1]"),
    ("    helper(v)\n", "    helper(z)\n", "body.7", "call helper", "call helper"),
    ("x[i] *= 2.0", "x[i] *= 3.0", "body.7", "call helper", "call helper"),
]


def read(text: str) -> Func:
    return parse_module(text)["f"]


@pytest.mark.parametrize(("old", "new", "path", "left", "right"), DIFFERENCES, ids=[d[1][:30] for d in DIFFERENCES])
def test_difference(old: str, new: str, path: str, left: str, right: str) -> None:
    assert old in TEXT
    a, b = read(TEXT), read(TEXT.replace(old, new))
    assert not same(a, b)
    assert structural_hash(a) != structural_hash(b)
    with pytest.raises(AssertionError) as caught:
        assert_same(a, b)
    message = str(caught.value)
    assert message.startswith(f"programs differ at {path}"), message
    assert f"`{left}" in message and f"`{right}" in message, message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("half", "h"),
        ("def f", "def f"),
        ("vj", "column"),
        ("eps", "epsilon"),
        ("helper", "other"),
        ("t = ", "scratch = "),
        ("    check", "\n\n    check"),
    ],
)
def test_names_and_places_do_not_count(old: str, new: str) -> None:
    a, b = read(TEXT), read(TEXT.replace(old, new))
    assert same(a, b) and structural_hash(a) == structural_hash(b)
    assert_same(a, b)


def test_order_of_parameters_counts() -> None:
    head = 'n = dim("n")\n@kernel\n'
    a = read(head + "def f(x: Out[f32, n], y: Out[f32, n]) -> None:\n    x[0] = 1.0\n    y[0] = 2.0")
    b = read(head + "def f(y: Out[f32, n], x: Out[f32, n]) -> None:\n    x[0] = 1.0\n    y[0] = 2.0")
    assert not same(a, b)


def test_one_variable_bound_in_two_loops_is_two_variables() -> None:
    n = Dim("n")
    x = Buffer("x", f32, (n,))

    def program(i: Var, j: Var) -> Func:
        def loop(v: Var) -> For:
            return For(v, Const(0, i64), n, "serial", Store(x, (v,), Load(x, (binary(Mul, v, 1),))))

        return Func("f", (Param(x, "inout"),), Seq((loop(i), loop(j))))

    one = Var("i")
    assert_same(program(one, one), program(Var("i"), Var("j")))


def test_a_variable_of_another_loop_is_a_difference() -> None:
    a = read('n = dim("n")\n@kernel\ndef f(x: Out[f32, n, n]) -> None:\n    for i, j in grid(n, n):\n        x[i, j] = 0.0')
    b = read('n = dim("n")\n@kernel\ndef f(x: Out[f32, n, n]) -> None:\n    for i, j in grid(n, n):\n        x[j, i] = 0.0')
    assert not same(a, b)


def test_text_is_linear_where_expressions_share_parts() -> None:
    e: Expr = Var("a")
    first = e
    for _ in range(200):
        e = e + e if not isinstance(e, Const) else e
    x = Buffer("x", i64, (Const(1, i64),))
    assert isinstance(first, Var)
    func = Func("f", (Param(first), Param(x, "out")), Store(x, (Const(0, i64),), e))
    assert len(canonical_text(func)) < 20_000


def test_hash_is_the_same_in_another_process() -> None:
    code = "import sys; from pliant.loop.parse import parse_module; from pliant.loop.structural import structural_hash\n"
    code += "print(structural_hash(parse_module(sys.stdin.read())['f']).hex())"
    done = subprocess.run([sys.executable, "-c", code], input=TEXT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == structural_hash(read(TEXT)).hex()


def test_layouts_of_parameters_do_not_go_by_name() -> None:
    def program(name: str, layout: str) -> Func:
        x = Buffer(name, i64, (Const(4, i64),))
        return Func("f", (Param(x, "out"),), Store(x, (Const(0, i64),), Const(0, i64)), {"layouts": {name: (layout, None)}})

    assert_same(program("x", "lambda d0: (d0,)"), program("y", "lambda d0: (d0,)"))
    assert not same(program("x", "lambda d0: (d0,)"), program("x", "lambda d0: (3 - d0,)"))


def sized(k: int, m: int, factor: str = "2.0") -> Func:
    text = f"""
from pliant import Out, Tensor, dim, f32, grid, kernel
n = dim("n")
@kernel
def f(a: Tensor[f32, n, {k}], b: Tensor[f32, {k}, {m}], c: Out[f32, n, {m}]) -> None:
    for i, j in grid(n, {m}):
        c[i, j] = 0.0
        for p in range({k}):
            c[i, j] += a[i, p] * b[p, j] * {factor}
"""
    return parse_module(text)["f"]


def test_promoted_hashes() -> None:
    assert promoted_hash(sized(384, 1536)) == promoted_hash(sized(576, 64))
    assert structural_hash(sized(384, 1536)) != structural_hash(sized(576, 64))
    assert promoted_hash(sized(384, 1536)) != promoted_hash(sized(384, 384))
    assert promoted_hash(sized(8, 16)) != promoted_hash(sized(8, 1))
    assert promoted_hash(sized(8, 16)) != promoted_hash(sized(8, 16, "3.0"))
