"""Machines without fused multiply-add: no code emulates one for our functions and templates; native code, wasm, interpreter agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_codegen_ops import edges, elementwise

import pliant
from compiled_graphs import call, interpret_host
from native_loops import same_bits
from op_cases import CASES, SIZES, arrays_of, build
from pliant import Out, Tensor, block, dim, exp, f16, f32, f64, fma, function, kernel, muladd, ops, tanh
from pliant.codegen.llvm import generate
from pliant.codegen.llvm_float import Floats
from pliant.compilation import State
from pliant.dtype import DType, i64
from pliant.graph.node import Function
from pliant.interp.loop import run_loop
from pliant.llm.kv_cache import PAGE
from pliant.llm.paged import Paged
from pliant.loop.buffer import Buffer
from pliant.loop.parse import parse_module
from pliant.loop.passes.without_fma import without_fma
from pliant.loop.stmt import For, Func, Param, Seq, Store
from pliant.loop.structural import assert_same
from pliant.lower.host.host import HostProgram
from pliant.pipeline import CODE, STEPS, run_steps, steps_to
from pliant.program import Program
from pliant.runtime.executable import Executable
from pliant.sym.expr import Call, Const, Var
from pliant.sym.function_names import EXPANDED_FUNCTIONS, UNFUSED
from pliant.sym.semantics import evaluate
from pliant.target import target
from wasm_programs import Wasm, module_of, run_host

n = dim("n", max=4096)
WITHOUT = ["llvm:x86-64", "llvm:x86-64-v2", "wasm", "wasm+simd128"]
RUN_HERE = ["llvm:x86-64", "llvm:x86-64-v2"]
WITH = ["llvm:x86-64-v3", "llvm:apple-m1"]
# A case of every template that multiplies and adds, and of operators made of functions.
OPERATORS = [
    *("softmax", "log_softmax", "gelu", "gelu_tanh", "silu", "mish", "layer_norm", "rms_norm"),
    *("attention_causal", "attention_tiles", "attention_tiles_causal", "attention_tiles_window"),
    *("block_linear_Q4_1", "block_linear_Q6_K", "block_linear_exact_Q4_1", "block_linear_exact_Q8_0"),
    *("half_linear_F16", "half_linear_BF16", "quantize_groups"),
]
PAGED = {"plain": Paged(4, 2, 16, 0.25, cache=f16), "cap": Paged(3, 3, 32, 0.2, window=70, cap=5.0, cache=f32)}


def steps(*left_out: str) -> list[Any]:
    """The steps of the pipeline up to the host program, everything computed in the call."""
    return [s for s in STEPS if s.name not in ("lift_constants", "emit", *left_out)]


def lowered(entry: Function, name: str, *left_out: str) -> State:
    """A function for a machine, before code is made of it."""
    program = Program.of(entry)
    return run_steps(State(entry, target(name), program.constants, level=0, functions=program.functions), steps(*left_out))


def host_of(entry: Function, name: str) -> HostProgram:
    """The host program of a function for a machine."""
    host = lowered(entry, name).host
    assert host is not None
    return host


def text_of(entry: Function, name: str) -> str:
    """The LLVM IR of a function for a machine."""
    host = host_of(entry, name)
    return generate((host.prepare, host.size, host.run), target(name)).text


def native(entry: Function, name: str) -> Executable:
    """A function as native code for a machine, everything computed in the call."""
    state = CODE[-1].run(lowered(entry, name))
    assert state.package is not None
    return Executable(state.package, constants=state.package.interface.memory(state.constants, state.functions))


def all_functions(d: DType, form: Callable[[str], str] = lambda fn: fn) -> Func:
    """A loop program that applies every function to the elements of two inputs, each with a result of its own."""
    size, i = Var("n"), Var("i")
    x, y = Buffer("x", d, (size,)), Buffer("y", d, (size,))
    outs = {fn: Buffer(f"{fn}_of", d, (size,)) for fn in EXPANDED_FUNCTIONS}
    stores = [Store(out, (i,), Call(form(fn), *(x.load(i), y.load(i))[: EXPANDED_FUNCTIONS[fn]])) for fn, out in outs.items()]
    params = (Param(x), Param(y), *(Param(out, "out") for out in outs.values()))
    return Func("all_functions", params, For(i, Const(0, i64), size, "serial", Seq(tuple(stores))))


def samples(d: DType) -> tuple[Any, Any]:
    """Arguments at the edges and between them."""
    a = np.concatenate([edges(d), np.linspace(-100, 100, 333).astype(d.numpy())])
    return a, np.random.default_rng(3).permutation(a)


def expected_of(d: DType) -> dict[str, Any]:
    """What the forms without fma are of the samples."""
    (a, b), (x, y) = samples(d), (Var("x", d), Var("y", d))
    return {fn: evaluate(Call(UNFUSED.get(fn, fn), *(x, y)[:count]), {x: a, y: b}) for fn, count in EXPANDED_FUNCTIONS.items()}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows when the code generator is asked for an fma."""
    found: list[int] = []
    emit = Floats.fma

    def counted(self: Floats, *operands: Any) -> Any:
        found.append(1)
        return emit(self, *operands)

    monkeypatch.setattr(Floats, "fma", counted)
    return found


@pytest.mark.parametrize("d", [f32, f64, f16], ids=str)
@pytest.mark.parametrize("name", WITHOUT)
def test_no_function_emulates_an_fma(name: str, d: DType, asked: list[int]) -> None:
    text = text_of(Program.of_kernel(all_functions(d)).entry, name)
    assert not asked and "pliant.fma64" not in text and "llvm.fma" not in text


def operator(case: str) -> Function:
    """The function of a case."""
    return build(CASES[case], True)[0]


def paged(shape: str) -> Function:
    """Attention over pages."""
    return Program.of_kernel(PAGED[shape].attend.func).entry


@pytest.mark.parametrize("make", [*((operator, case) for case in OPERATORS), *((paged, shape) for shape in PAGED)], ids=lambda m: m[1])
def test_no_template_emulates_an_fma(make: tuple[Callable[[str], Function], str], asked: list[int]) -> None:
    entry = make[0](make[1])
    for name in ("llvm:x86-64-v2", "wasm"):
        text = text_of(entry, name)
        assert not asked and "pliant.fma64" not in text and "llvm.fma" not in text, name
    host = lowered(entry, "llvm:x86-64-v2", "without_fma").host  # the test would find one
    assert host is not None
    generate((host.prepare, host.size, host.run), target("llvm:x86-64-v2"))
    assert asked or make[1] in ("layer_norm", "rms_norm", "quantize_groups")


@pytest.mark.parametrize("name", WITH)
def test_machines_with_fma_keep_their_programs(name: str) -> None:
    *before, step = steps_to("without_fma")
    for case in ("gelu", "attention_tiles", "block_linear_Q4_1"):
        entry = operator(case)
        state = run_steps(State(entry, target(name), Program.of(entry).constants), before)
        assert step.run(state) is state
        assert step.run(replace(state, target=target("wasm"))).function is not state.function


@kernel
def exact(x: Tensor[f64, n], y: Tensor[f64, n], z: Out[f64, n]) -> None:
    for i in range(n):
        with block("z", "S", i) as v:
            z[v] = fma(x[v], y[v], muladd(x[v], y[v], exp(-x[v])) * 0.0 - x[v] * y[v])


@pytest.mark.parametrize("name", RUN_HERE)
def test_an_fma_that_somebody_wrote_is_one(name: str, asked: list[int]) -> None:
    """The error of a product, which two roundings make 0."""
    entry = Program.of_kernel(exact.func).entry
    assert "pliant.fma64" in text_of(entry, name) and asked
    x, y = np.random.default_rng(3).uniform(1, 2, (2, 100))
    want = [float(np.longdouble(a) * np.longdouble(b) - np.longdouble(a * b)) for a, b in zip(x, y, strict=True)]
    found = native(entry, name)(x, y)
    assert np.count_nonzero(found) > 50
    if np.finfo(np.longdouble).nmant >= 63:  # of the 106 bits of a product these are enough to tell sign and size
        np.testing.assert_allclose(found, want, rtol=0.0, atol=2.0**-62)


@kernel
def mixed(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        with block("y", "S", i) as v:
            y[v] = muladd(x[v], 2.5, tanh(exp(x[v], fused=False)))


def test_the_program_says_what_is_computed() -> None:
    changed = without_fma(mixed.func)
    assert "y[v] = x[v] * 2.5 + tanh(exp(x[v], fused=False), fused=False)" in str(changed)
    assert_same(parse_module(str(changed))["mixed"], changed)
    assert_same(parse_module(str(mixed.func))["mixed"], mixed.func)
    assert without_fma(changed) is changed


@kernel
def outer(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    mixed(x, y)


def test_callees_change_too() -> None:
    changed = without_fma(outer.func)
    assert "fused=False), fused=False)" in str(changed)
    x = np.linspace(-3, 3, 50).astype(np.float32)
    results = []
    for func in (changed, without_fma(mixed.func)):
        run_loop(func, [x, out := np.zeros_like(x)])
        results.append(out)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("d", [f32, f64], ids=str)
@pytest.mark.parametrize("name", ["wasm", "wasm+simd128"])
def test_functions_in_wasm(name: str, d: DType) -> None:
    func = all_functions(d, lambda fn: UNFUSED.get(fn, fn))
    wasm, expected = Wasm([func], name), expected_of(d)
    outs = [np.zeros(len(samples(d)[0]), d.numpy()) for _ in expected]
    assert wasm.call(func, [*samples(d), *outs], [len(outs[0])]) == 0
    for (fn, want), found in zip(expected.items(), outs, strict=True):
        assert same_bits(found, want), fn


@pytest.mark.parametrize("d", [f32, f64], ids=str)
@pytest.mark.parametrize("name", RUN_HERE)
def test_compiled_functions_are_those_of_the_forms_without_fma(name: str, d: DType) -> None:
    found = native(Program.of_kernel(all_functions(d)).entry, name)(*samples(d))
    for (fn, want), out in zip(expected_of(d).items(), found, strict=True):
        assert same_bits(out, want), fn


def arguments_of(case: str) -> list[Any]:
    """Arrays for a case."""
    return arrays_of(CASES[case], [tuple(SIZES[s] if isinstance(s, str) else s for s in shape) for shape in CASES[case].shapes])


@pytest.mark.parametrize("case", OPERATORS)
def test_operators_equal_the_interpreter(case: str) -> None:
    entry, arrays = operator(case), arguments_of(case)
    expected = interpret_host(host_of(entry, "llvm:x86-64-v2"), [np.array(a) for a in arrays])
    for found, want in zip(call(native(entry, "llvm:x86-64-v2"), arrays), expected, strict=True):
        assert same_bits(found, want)


@pytest.mark.parametrize("case", OPERATORS)
def test_operators_in_wasm_equal_the_interpreter(case: str) -> None:
    name = "wasm" if case == "half_linear_F16" else "wasm+simd128"  # LLVM fails an assertion of its own on vectors of that one
    entry, arrays = operator(case), arguments_of(case)
    host = host_of(entry, name)
    expected = interpret_host(host, [np.array(a) for a in arrays])
    for found, want in zip(run_host(host, [np.array(a) for a in arrays], module_of(host, name)), expected, strict=True):
        assert same_bits(found, want)


def pages(shape: Paged, context: int) -> list[Any]:
    """Arguments of attention: the last ten tokens of a sequence, over pages in disorder."""
    rng = np.random.default_rng(context)
    count, t, kind = -(-context // PAGE), 10, shape.cache.numpy()
    table = rng.permutation(count)[None].astype(np.int32)
    sizes = [(-(-count // shape.run), 1, shape.run, shape.kv_heads, *page) for page in ((shape.head_dim, PAGE), (PAGE, shape.head_dim))]
    keys, values = (rng.standard_normal(size).astype(kind) for size in sizes)
    first, length, sequence = (np.zeros(t, np.int32) for _ in range(3))
    for k, start in enumerate(range(0, t, shape.tokens)):
        first[k], length[k] = start, min(shape.tokens, t - start)
    q = rng.standard_normal((t, shape.heads, shape.head_dim)).astype(np.float32)
    sinks = rng.standard_normal(shape.heads).astype(np.float32)
    return [q, keys, values, 0, np.arange(context - t, context, dtype=np.int32), sequence, first, length, table, sinks]


@pytest.mark.parametrize("shape", PAGED)
def test_attention_over_pages_equals_the_interpreter(shape: str) -> None:
    entry, arguments = paged(shape), pages(PAGED[shape], 100)
    (expected,) = interpret_host(host_of(entry, "llvm:x86-64-v2"), arguments)
    (found,) = call(native(entry, "llvm:x86-64-v2"), arguments)
    assert same_bits(found, expected)


@function
def scaled(x: Tensor[f32, n], s: f32) -> Tensor[f32, n]:
    return x * ops.exp(s)


def test_scalars_of_the_host_program(asked: list[int]) -> None:
    text_of(scaled.graph, "llvm:x86-64-v2")
    assert not asked
    x, s = Var("x", f32), np.float32(1.37)
    found = native(scaled.graph, "llvm:x86-64-v2")(np.ones(3, np.float32), s)
    np.testing.assert_array_equal(found, np.full(3, evaluate(Call("exp.unfused", x), {x: s})))


def test_the_step_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then old machines compute, slowly, the bits of those that have the instruction."""
    monkeypatch.setenv("PLIANT_DISABLE", "without_fma")
    x = np.linspace(-9, 9, 2000).astype(np.float32)
    v = Var("v", f32)
    func: Func = elementwise("f", Call("tanh", v), (v,), "serial")
    found = pliant.compile(Program.of_kernel(func), target="llvm:x86-64-v2", cache=False)(x)
    np.testing.assert_array_equal(found, evaluate(Call("tanh", v), {v: x}))
    assert (found != evaluate(Call("tanh.unfused", v), {v: x})).any()
