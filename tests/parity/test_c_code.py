"""C code of loop programs, built by the system's compiler: every operator, cast, function and random programs equal the interpreter."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from test_codegen_ops import DTYPES, edges, elementwise, operations
from test_dtypes import STORAGE, even, passed, program, values

from c_programs import RANDOM, C, build, compiler, run_host
from compiled_graphs import interpret_host
from counts import count
from generate_kernels import make_kernel
from generate_loops import clone, make_arguments, make_program
from native_loops import same_bits
from op_cases import CASES, arrays_of
from op_cases import build as build_case
from pliant.backend import backend_of
from pliant.codegen.c_render import render
from pliant.codegen.c_types import helper_texts
from pliant.compilation import State
from pliant.dtype import DType, dtype
from pliant.interp.loop import run_loop
from pliant.loop.buffer import Buffer, loaded_dtype
from pliant.loop.passes.without_fma import without_fma
from pliant.loop.stmt import For, Func, Param, Seq, Store, View
from pliant.pipeline import STEPS, run_steps
from pliant.program import Program
from pliant.sym.expr import BitNot, Call, Cast, Const, Dim, Expr, Fma, Lt, Var
from pliant.sym.function_names import EXPANDED_FUNCTIONS
from pliant.sym.semantics import evaluate
from pliant.target import target
from schedule_kernels import KERNELS as TEXTS
from schedule_kernels import kernel
from schedule_kernels import make_arguments as arguments_of

PROGRAMS = count(30, 2000)
KERNELS = list(TEXTS)
PORTABLE = "-DPLIANT_PORTABLE"  # instructions that C has no word for are left alone

Case = tuple[Func, Expr, tuple[Var, ...], list[np.ndarray[Any, Any]]]


def cases(d: DType, step: int = 1) -> list[Case]:
    """Elementwise programs of every operator on edge values of a type."""
    variables = tuple(Var(v, d) for v in "abc")
    a = edges(d)
    inputs = [np.repeat(a, len(a)), np.tile(a, len(a)), np.resize(np.roll(a, 5), len(a) ** 2)]
    found = list(enumerate(operations(d, *variables)))[::step]
    return [(elementwise(f"{d}_{n}", e, variables, ("serial", "vector")[n % 2]), e, variables, inputs) for n, e in found]


def check(code: C, made: list[Case]) -> None:
    for func, e, variables, inputs in made:
        out = np.zeros(len(inputs[0]), e.dtype.numpy())
        assert code.call(func, [*inputs, out], [len(out)]) == 0
        assert same_bits(out, np.broadcast_to(evaluate(e, dict(zip(variables, inputs, strict=True))), out.shape)), e


def test_every_operator_of_every_type() -> None:
    made = [case for element in DTYPES for case in cases(dtype(element), 1 if element in ("f32", "i64", "bf16") else 3)]
    check(C([case[0] for case in made]), made)


def test_what_machines_do_by_instructions_in_portable_c() -> None:
    """sqrt, fma and what they are made of."""
    made = [case for element in ("f32", "f64") for case in cases(dtype(element)) if "sqrt" in str(case[1]) or "fma" in str(case[1])]
    assert len(made) >= 4
    check(C([case[0] for case in made], PORTABLE), made)


def test_sqrt_and_fma_of_random_bits_in_portable_c() -> None:
    rng = np.random.default_rng(7)
    made: list[Case] = []
    for d in (dtype("f32"), dtype("f64")):
        a, b, c = variables = tuple(Var(v, d) for v in "abc")
        bits = rng.integers(0, 2**64, (3, 4000), np.uint64).astype(f"u{d.itemsize}").view(d.numpy())
        with np.errstate(all="ignore"):
            bits[2, ::2] = (-bits[0] * bits[1])[::2]  # most digits cancel
        near = rng.standard_normal((3, 4000)).astype(d.numpy())
        inputs = list(np.concatenate([bits, near], axis=1))
        made += [
            (elementwise(f"{d}_{n}", e, variables, "serial"), e, variables, inputs) for n, e in enumerate((Call("sqrt", a), Fma(a, b, c)))
        ]
    with np.errstate(all="ignore"):
        check(C([case[0] for case in made], PORTABLE), made)


def test_every_function() -> None:
    made: list[Case] = []
    for element in ("f32", "f64", "f16"):
        d = dtype(element)
        variables = tuple(Var(v, d) for v in "abc")
        a = np.concatenate([edges(d), np.linspace(-12, 12, 99).astype(d.numpy())])
        inputs = [a, np.roll(a, 11), np.roll(a, 5)]
        for fn, arity in EXPANDED_FUNCTIONS.items():
            for form in (fn, f"{fn}.unfused") if fn != "rsqrt" and element != "f16" else (fn,):
                e = Call(form, *variables[:arity])
                made.append((elementwise(f"{form.replace('.', '_')}_{d}", e, variables, "serial"), e, variables, inputs))
    check(C([case[0] for case in made]), made)


def test_storage_types() -> None:
    funcs: dict[tuple[DType, DType], Func] = {}
    for d in STORAGE:
        wide = loaded_dtype(d)
        funcs[d, wide] = program(f"decode_{d}", [d], wide, lambda x: x, "serial")
        funcs[wide, d] = program(f"encode_{d}", [wide], d, lambda x: x, "serial")
    code = C(list(funcs.values()))
    for (source, to), func in funcs.items():
        small = to if to.storage else source
        a = even(values(source), small)
        outs = [np.zeros(to.array_shape((len(a),)), to.array_dtype()) for _ in range(2)]
        assert code.call(func, [passed(a, source), outs[0]], [len(a)]) == 0
        run_loop(func, [passed(a, source), outs[1]], [len(a)])
        assert same_bits(*(o.view(np.uint8) if to.bits <= 8 else o for o in outs)), func.name


def test_random_programs() -> None:
    compiler()
    funcs = {seed: make_program(seed).with_(name=f"p{seed}") for seed in range(PROGRAMS)}
    batch = 200
    for first in range(0, PROGRAMS, batch):
        some = {seed: funcs[seed] for seed in range(first, min(first + batch, PROGRAMS))}
        code = C(list(some.values()), *RANDOM)
        for seed, func in some.items():
            arguments, dims = make_arguments(func, 2 * seed)
            expected, mine = [clone(a) for a in arguments], [clone(a) for a in arguments]
            run_loop(func, expected, dims)
            assert code.call(func, mine, dims) == 0
            for p, x, y in zip(func.params, expected, mine, strict=True):
                assert same_bits(x, y), f"seed {seed}: {p.value}"


def test_random_kernels_as_default_rules_schedule_them() -> None:
    """For one lane, with fused multiply-add and without; registers are variables, loops are written out."""
    compiler()
    funcs: dict[int, Func] = {}
    for seed in range(count(10, 500)):
        machine = target(("c", "c:cortex-m7")[seed % 2])
        func = kernel(KERNELS[seed // 2 % len(KERNELS)]) if seed % 2 else make_kernel(seed)
        func = func if machine.has_fma else without_fma(func)
        funcs[seed] = backend_of(machine).schedule(func, machine)[0].with_(name=f"k{seed}")
    code = C(list(funcs.values()), *RANDOM)
    for seed, func in funcs.items():
        dims = {v.name: 8 + 4 * (seed % 3) if isinstance(v, Dim) and v.multiple_of > 1 else 7 + seed % 5 for v in func.symbols}
        expected = arguments_of(func, dims, seed)
        mine = [clone(a) for a in expected]
        run_loop(func, expected, list(dims.values()))
        assert code.call(func, mine, list(dims.values())) == 0
        for p, x, y in zip(func.params, expected, mine, strict=True):
            assert same_bits(x, y), f"seed {seed}: {p.value}"


def test_operators() -> None:
    """Cases of the operators' tables, over symbolic dims: the host program in C equals the same host program interpreted."""
    compiler()
    steps = [s for s in STEPS if s.name not in ("lift_constants", "emit")]
    hosts = {}
    for n, (name, case) in enumerate(list(CASES.items())[:: count(80, 2)]):
        function, _, shapes = build_case(case, True)
        program_ = Program.of(function)
        state = State(function, target(("c", "c:cortex-m7")[n % 2]), program_.constants, functions=program_.functions)
        host = run_steps(state, steps).host
        assert host is not None
        if all(o.annotation.dtype.bits >= 8 for o in host.outputs):  # the oracle gives no packed results
            hosts[name] = host, arrays_of(case, shapes)
    named = [(h.prepare.with_(name=f"prepare_{n}"), h.run.with_(name=f"run_{n}")) for n, (h, _) in enumerate(hosts.values())]
    library = build({"code.c": render([f for pair in named for f in pair]).text.encode()})
    for n, (name, (host, arrays)) in enumerate(hosts.items()):
        wanted = interpret_host(host, [np.array(a) for a in arrays])
        for x, y in zip(run_host(host, library, arrays, f"_{n}"), wanted, strict=True):
            assert same_bits(x.reshape(-1)[: y.size], y.reshape(-1)), name


def test_only_helpers_that_are_used_are_in_the_text() -> None:
    text = render([program("add", [dtype("f32"), dtype("f32")], dtype("f32"), lambda a, b: a + b, "serial")]).text
    assert "pl_" not in text
    assert all(f"{name}(" in body or name == "prelude" for name, body in helper_texts().items())


def test_no_library_is_needed() -> None:
    """Nothing is included but headers, and no function of libm is called."""
    text = "".join(helper_texts().values())
    assert "math.h" not in text and "stdio.h" not in text and "malloc" not in text


def test_fast_math_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "code.c"
    source.write_text(render([program("neg", [dtype("f32")], dtype("f32"), lambda a: -a, "serial")]).text)
    done = subprocess.run([compiler(), "-c", "-ffast-math", str(source), "-o", str(tmp_path / "code.o")], capture_output=True, text=True)
    assert done.returncode != 0 and "-ffast-math" in done.stderr


def test_bits_of_a_condition_are_flipped_without_a_warning() -> None:
    u16, f32 = dtype("u16"), dtype("f32")
    func = program("flip", [f32, f32], u16, lambda a, b: BitNot(Cast(u16, Lt(a, b))), "serial")
    x, y, out = np.float32([1, 2, np.nan]), np.float32([2, 1, 1]), np.zeros(3, np.uint16)
    assert C([func]).call(func, [x, y, out], [3]) == 0
    np.testing.assert_array_equal(out, ~(x < y).astype(np.uint16))


def test_what_is_written_by_a_view_alone_is_written() -> None:
    n = Var("n")
    y = Buffer("y", dtype("f32"), (n,))
    part, i = Buffer("part", dtype("f32"), (n,)), Var("i")
    store = For(i, Const(0, i.dtype), n, "serial", Store(part, (i,), Const(2.0, dtype("f32"))))
    func = Func("fill", (Param(y, "out"),), Seq((View(part, y, (Const(0, i.dtype),)), store)))
    result = np.zeros(5, np.float32)
    assert C([func]).call(func, [result], [5]) == 0
    np.testing.assert_array_equal(result, 2.0)
