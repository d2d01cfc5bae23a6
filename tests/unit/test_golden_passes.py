"""One golden per step of the pipeline before the schedule: a small program before and after the step, in tests/golden/passes.

After an intended change: `PLIANT_UPDATE=1 python -m pytest tests/unit/test_golden_passes.py`, then read the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import goldens
import pliant
from pliant import Kernel, Out, Tensor, dim, f32, function, i32, kernel, match_cast, ops, u8
from pliant.api import program_of
from pliant.compilation import State, Step
from pliant.pipeline import CODE, STEPS, run_steps
from pliant.program import Program
from pliant.schedule.decisions import Decisions
from pliant.target import Target, target

# `schedule` is what test_golden_rules.py and test_golden_loop_passes.py show; `host` and `emit` make no graph program.
SHOWN = tuple(s for s in STEPS if s.name not in ("schedule", "host", "emit"))
V3 = target("llvm:x86-64-v3")  # fixed, so that the goldens are the same on every machine
WITHOUT_FMA = target("llvm:x86-64-v2")

n, m = dim("n", max=64), dim("m", max=64)
same_name = dim("n", max=64)  # another dim than `n`
few, all_of_x = dim("few", max=8), dim("all_of_x")
most = dim("most", max=64)
fewer = dim("fewer", le=most)
double = dim("double", eq=2 * fewer)
WQ, WK = np.eye(4, dtype=np.float32), 2 * np.eye(4, dtype=np.float32)
W, ONES = np.ones((2, 3, 1, 1), np.float32), np.ones(2, np.float32)
WIDE, NARROW = np.ones((8, 8, 3, 3), np.float32), np.ones((8, 8), np.float32)
CODES, SCALE, ZERO, OFFSET = np.ones((4, 4), np.int8), np.float32(0.5), np.int8(0), np.uint8(3)


@function
def twins(x: Tensor[f32, n], y: Tensor[f32, same_name]) -> tuple[Tensor[f32, n], Tensor[f32, same_name]]:
    return ops.exp(x), ops.exp(y)


@function
def callee(x: Tensor[f32, n]) -> Tensor[f32, n]:
    return ops.exp(x)


@function
def caller(x: Tensor[f32, n]) -> Tensor[f32, n]:
    return callee(x) * 2.0


@function
def fast(x: Tensor[f32, n, m], w: Tensor[f32, m, n]) -> Tensor[f32, n, n]:
    return ops.relu(x @ w)


@function
def called(x: Tensor[f32, n, n]) -> Tensor[f32, n, n]:
    return ops.exp(ops.relu(ops.permute(x, (1, 0)) @ x))


@function
def dequantized(x: Tensor[u8, n, 4]) -> Tensor[f32, n, 4]:
    return ops.dequantize_linear(x, SCALE, OFFSET) @ ops.dequantize_linear(CODES, SCALE, ZERO)


@function
def literals(x: Tensor[f32, n]) -> Tensor[f32, n]:
    return x * (ops.constant(2.0) / ops.sqrt(ops.constant(16.0)))


@function
def normed(x: Tensor[f32, n, 3, m, m]) -> Tensor[f32, n, 2, m, m]:
    return ops.relu(ops.batch_norm(ops.conv(x, W), ONES, ONES, ONES, ONES))


@function
def pointwise(x: Tensor[f32, n, 3, m, m], w: Tensor[f32, 2, 3, 1, 1]) -> Tensor[f32, n, 2, m, m]:
    return ops.conv(x, w)


WINDOWS = np.ones((24, 24, 3, 3), np.float32)


@function
def many_channels(x: Tensor[f32, n, 24, m, m]) -> Tensor[f32, n, 24, m, m]:
    return ops.conv(x, WINDOWS, padding=1)


@function
def attention(q: Tensor[f32, 2, n, 4], k: Tensor[f32, 2, m, 4], v: Tensor[f32, 2, m, 4]) -> Tensor[f32, 2, n, 4]:
    return ops.matmul(ops.softmax(ops.matmul(q, ops.permute(k, (0, 2, 1))) * 0.5, -1), v)


@function
def heads(x: Tensor[f32, n, 4]) -> tuple[Tensor[f32, 2, n, 2], Tensor[f32, 2, n, 2]]:
    q, k = ops.linear(x, WQ), ops.linear(x, WK)
    return ops.permute(ops.reshape(q, (n, 2, 2)), (1, 0, 2)), ops.permute(ops.reshape(k, (n, 2, 2)), (1, 0, 2))


@function
def algebra(x: Tensor[f32, n, m], i: Tensor[i32, n]) -> tuple[Tensor[f32, m, n], Tensor[i32, n]]:
    y = ops.permute(ops.reshape(ops.reshape(x / 4.0, (n * m,)), (n, m)), (1, 0))
    return ops.neg(ops.neg(y)) * 1.0, ops.maximum(i + 0, i) * 1


@function
def twice(x: Tensor[f32, n, m], b: bool) -> Tensor[f32, n, m]:
    y = ops.exp(x)
    if b:
        z = ops.exp(x) + ops.tanh(x)
    else:
        z = ops.tanh(x) - y
    return z * ops.exp(x)


@function
def scaled(x: Tensor[f32, n, m]) -> Tensor[f32, n]:
    return ops.sum(ops.exp(x), axis=-1)


@function
def unused(x: Tensor[f32, n]) -> Tensor[f32, n]:
    _ = ops.exp(x)
    return ops.tanh(x)


@function
def cast_to(x: Tensor[f32, n, 2]) -> Tensor[f32, all_of_x]:
    return ops.exp(match_cast(ops.reshape(x, (2 * n,)), Tensor[f32, all_of_x]))


@function
def small(x: Tensor[f32, few]) -> Tensor[f32, few]:
    return ops.exp(x)


@function
def narrowed(x: Tensor[f32, n]) -> Tensor[f32, n]:
    return small(x)


@kernel
def plain(x: Tensor[f32, n, m], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = 0.0
        for k in range(m):
            y[i] += x[i, k]


@function
def row_sums(x: Tensor[f32, n, m]) -> Tensor[f32, n]:
    return plain(x)


@kernel(scheduled=True)
def unmoved(x: Tensor[f32, n, m], y: Out[f32, n, m]) -> None:
    for i in range(n):
        for j in range(m):
            y[i, j] = x[i, j] * 2.0


template = Kernel(unmoved.func.with_(name="template", attrs=unmoved.func.attrs.with_(moved=("x",))))


@function
def turned(x: Tensor[f32, m, n]) -> Tensor[f32, n, m]:
    return template(ops.permute(x, (1, 0)))


@function
def shared(x: Tensor[f32, n]) -> tuple[Tensor[f32, n], Tensor[f32]]:
    y = x + 1.0
    return ops.exp(y), ops.sum(y)


@function
def chain(x: Tensor[f32, n]) -> Tensor[f32, n]:
    return ops.tanh(ops.exp(x) + x)


@kernel(scheduled=True)
def doubled(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = x[i] * 2.0


@kernel(scheduled=True)
def repeated(x: Tensor[f32, n], y: Out[f32, 2 * n]) -> None:
    for i in range(2 * n):
        y[i] = x[i // 2]


@function
def compound(x: Tensor[f32, n]) -> Tensor[f32, 2 * n]:
    return ops.exp(doubled(repeated(x)))


@function
def images(x: Tensor[f32, 1, 8, 6, 6]) -> Tensor[f32, 1, 8, 2, 2]:
    return ops.conv(ops.conv(x, WIDE), WIDE)


@function
def layer(x: Tensor[f32, n, 8]) -> Tensor[f32, n, 8]:
    return x @ ops.permute(ops.constant(NARROW), (1, 0))


def on_host(x: Any) -> Any:
    """Return the array backwards."""
    return x[::-1]


@function
def foreign(x: Tensor[f32, n]) -> Tensor[f32, n]:
    return ops.call_host(on_host, [x], out=Tensor[f32, n])


@function
def joined(x: Tensor[f32, n], y: Tensor[f32, n]) -> Tensor[f32, 2 * n]:
    return ops.concat([doubled(x), doubled(y)], 0)


@function
def scaled_channels(
    x: Tensor[f32, 4, 6, 8], y: Tensor[f32, 2, 6, 8], w: Tensor[f32, 8]
) -> tuple[Tensor[f32, 4, 6, 8], Tensor[f32, 2, 6, 8]]:
    return x * w, y * w


@function
def related(x: Tensor[f32, most], y: Tensor[f32, fewer], z: Tensor[f32, double]) -> Tensor[f32, fewer]:
    return x[:fewer] + y + z[fewer:]


@function
def beginning(x: Tensor[f32, most], y: Tensor[f32, fewer]) -> tuple[Tensor[f32, fewer], Tensor[f32, fewer]]:
    return x[:fewer], y


@function
def frames(x: Tensor[f32, 1, 3, 12, 16]) -> Tensor[f32, 1, 3, 6, 8]:
    return ops.max_pool(x, 2)


PROGRAMS: dict[str, Any] = {
    "unique_dims": twins,
    "inline_functions": caller,
    "use_relations": related,
    "call_libraries": called,
    "integer_products": dequantized,
    "fold_constants": literals,
    "fold_batch_norm": normed,
    "pointwise_convolutions": pointwise,
    "recognize_attention": attention,
    "combine_matmuls": heads,
    "transposes_into_matmul": called,
    "simplify": algebra,
    "common_subexpressions": twice,
    "winograd_convolutions": many_channels,
    "lower_ops": scaled,
    "dead_code": unused,
    "relations_to_calls": beginning,
    "resolve_casts": cast_to,
    "narrow_dims": narrowed,
    "infer_blocks": row_sums,
    "fold_data_movement": turned,
    "rematerialize": shared,
    "fuse": chain,
    "name_sizes": compound,
    "layout_nchwc": images,
    "choose_layouts": layer,
    "video": frames,
    "lift_constants": layer,
    "foreign_calls": foreign,
    "copy_elision": joined,
    "promote_sizes": scaled_channels,
    "without_fma": callee,
}


@contextmanager
def registered(step: Step) -> Iterator[None]:
    """Register a library function for the pattern `fast`, for the step that calls libraries."""
    if step.name != "call_libraries":
        yield
        return
    pattern = pliant.register_library(fast, "libfast.so:relu_matmul")
    try:
        yield
    finally:
        pliant.unregister_library(pattern)


def changed(step: Step, machine: Target) -> tuple[str, str]:
    """Return the program of a step before and after it; the steps before have run."""
    program = program_of(PROGRAMS[step.name])
    start = State(program.entry, machine, program.constants, functions=program.functions, decisions=Decisions())
    before = run_steps(start, STEPS[: STEPS.index(step)])
    if step.name == "video":  # without the kernels, which are too many for a golden that is read
        after = run_steps(replace(before, video=2), [step])
        return str(before.function), str(after.function)
    after = run_steps(before, [step])
    return shown(before), shown(after)


def shown(state: State) -> str:
    """Return the function, what is computed when it is loaded, and the copies that may be elided."""
    parts = [str(Program(state.function))]
    if state.load is not None:
        parts.append(f"# computed when the program is loaded\n{Program(state.load)}")
    if state.copy_elision is not None:
        parts += [f"# {v.name} consists of {', '.join(map(str, ranges))}" for v, ranges in state.copy_elision.always.items()]
    return "\n".join(parts)


@pytest.mark.parametrize("step", SHOWN, ids=lambda s: s.name)
def test_golden(step: Step) -> None:
    with registered(step):
        before, after = changed(step, WITHOUT_FMA if step.name == "without_fma" else V3)
    goldens.compare(f"passes/{step.name}", f"{step.name}: {step.holds}", before, after)


def test_every_step_has_a_golden() -> None:
    assert set(PROGRAMS) == {s.name for s in SHOWN}
    assert goldens.names("passes") == {s.name for s in SHOWN}
    assert {"schedule", "host", "emit"} < {s.name for s in CODE}
