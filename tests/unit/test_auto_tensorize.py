"""Auto-tensorization: matmuls and convolutions of bytes and floats become instructions, whatever their shapes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

import pliant
from exported_programs import Exported
from pliant.codegen.emit import emit_assembly
from pliant.codegen.llvm import generate
from pliant.interp.loop import run_loop
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify
from pliant.lower.host.lift_workspace import lift_workspace
from pliant.schedule import Schedule, Trace
from pliant.schedule.auto_tensorize import auto_tensorize, mapping, matches
from pliant.support.errors import ScheduleError
from pliant.target import target
from schedule_invariant import check_schedule
from schedule_kernels import kernel, make_arguments, parse

GOLDEN = Path(__file__).parent.parent / "golden" / "tensorize_conv.txt"
MATMUL = """
n = dim("n")
@kernel
def mm(a: Tensor[u8, n, {k}], b: Tensor[i8, {k}, {m}], c: Out[i32, n, {m}]) -> None:
    for i, j, k in grid(n, {m}, {k}):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0
            c[vi, vj] += cast(i32, a[vi, vk]) * cast(i32, b[vk, vj])
"""
CONV = """
n = dim("n")
@kernel
def conv(x: Tensor[u8, n + 2, 5], w: Tensor[i8, 3, 5, 21], c: Out[i32, n, 21]) -> None:
    for i, o, r, k in grid(n, 21, 3, 5):
        with block("c", "SSRR", i, o, r, k) as (vi, vo, vr, vk):
            with init():
                c[vi, vo] = 0
            c[vi, vo] += cast(i32, x[vi + vr, vk]) * cast(i32, w[vr, vk, vo])
"""

IMAGE = """
h = dim("h")
w = dim("w")
@kernel
def conv(x: Tensor[u8, {rows} + 2, {columns} + 2, 5], k: Tensor[i8, 3, 3, 5, 6], c: Out[i32, {rows}, {columns}, 6]) -> None:
    for i, j, o, r, q, d in grid({rows}, {columns}, 6, 3, 3, 5):
        with block("c", "SSSRRR", i, j, o, r, q, d) as (vi, vj, vo, vr, vq, vd):
            with init():
                c[vi, vj, vo] = 0
            c[vi, vj, vo] += cast(i32, x[vi + vr, vj + vq, vd]) * cast(i32, k[vr, vq, vd, vo])
"""


def arrays(func: object, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    made = []
    for b in func.buffers:  # type: ignore[attr-defined]
        shape = [n + 2 if "+" in str(e) else n if str(e) == "n" else int(str(e)) for e in b.shape]
        kind = {"u8": np.uint8, "i8": np.int8, "i32": np.int32}[b.dtype.name]
        limits = np.iinfo(kind)
        made.append(rng.integers(limits.min, limits.max, shape, endpoint=True).astype(kind))
    return made


@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize(
    "text", [MATMUL.format(k=24, m=32), MATMUL.format(k=13, m=21), MATMUL.format(k=1, m=1), CONV], ids=["even", "odd", "tiny", "conv"]
)
@pytest.mark.parametrize("instruction", ["avx512vnni.dot_u8s8", "avx2.dot_u8s8"])
def test_bytes(text: str, instruction: str, n: int) -> None:
    func = parse(text)
    s = Schedule(func)
    made = auto_tensorize(s, "c", instruction)
    assert made.block.annotations["instruction"] == instruction and s.rounding == []
    verify(s.program)
    assert_same(Trace.from_json(s.trace.to_json()).apply(func), s.program)
    assert not s.program.attrs.layouts  # the interface is as it was
    expected = arrays(func, n)
    found = [a.copy() for a in expected]
    run_loop(func, expected, [n])
    run_loop(s.program, found, [n], order="shuffled")
    np.testing.assert_array_equal(found[-1], expected[-1])


@pytest.mark.parametrize(("rows", "columns"), [("h", "w"), ("h + 2", "w + 2"), ("(h + 1) // 2", "w")])
def test_images_of_any_size(rows: str, columns: str) -> None:
    """The pixels of an image of dynamic height and width become the lanes of an instruction: their iterators are fused."""
    func = parse(IMAGE.format(rows=rows, columns=columns))
    s = Schedule(func)
    auto_tensorize(s, "c", "avx2.dot_s8u8")
    assert len(s.loops("c_o")) == 3 and s.rounding == []
    check_schedule(func, s, [{"h": 0, "w": 0}, {"h": 0, "w": 3}, {"h": 3, "w": 0}, {"h": 3, "w": 5}, {"h": 6, "w": 2}])


def test_the_instruction_is_emitted_for_a_convolution() -> None:
    s = Schedule(parse(CONV))
    auto_tensorize(s, "c", "avx512vnni.dot_u8s8")
    module = generate([lift_workspace(s.program)[0]], target("llvm:znver4"))
    assert re.search(r"vpdpbusd\s.*zmm", emit_assembly(module.text, module.target))


def test_golden() -> None:
    s = Schedule(parse(CONV))
    auto_tensorize(s, "c", "avx512vnni.dot_u8s8")
    text = f"{s.trace}\n\n{s.program}"
    if os.environ.get("PLIANT_UPDATE") == "1":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_floats_declare_their_rounding() -> None:
    s = Schedule(kernel("matmul"))
    auto_tensorize(s, "c", "fma.f32x8")
    verify(s.program)
    assert s.rounding
    for n in (0, 3):
        expected = make_arguments(kernel("matmul"), {"n": n})
        found = [a.copy() for a in expected]
        run_loop(kernel("matmul"), expected)
        run_loop(s.program, found)
        np.testing.assert_allclose(found[2], expected[2], rtol=1e-5, atol=1e-5)


def test_what_matches() -> None:
    func = parse(CONV)
    found = {m.instruction: m for m in matches(func, Schedule(func).block("c").block, target("llvm:znver4"))}
    widths = {"avx512vnni": ("", "_x8", "_x4"), "avx2": ("", "_x4")}
    assert set(found) == {f"{have}.dot_{signs}{x}" for have, xs in widths.items() for x in xs for signs in ("u8s8", "s8u8")}
    assert [[v.name for v in vs] for vs in found["avx2.dot_u8s8"].fused] == [["vo"], ["vr", "vk"]]
    assert [v.name for v in found["avx2.dot_u8s8"].outside] == ["vi"]
    assert [[v.name for v in vs] for vs in found["avx2.dot_s8u8"].fused] == [["vi"], ["vr", "vk"]]  # lanes over the rows
    assert "takes u8" in str(mapping(func, Schedule(func).block("c").block, "avx2.dot_u8u8"))


def test_refusals_leave_the_schedule_alone() -> None:
    for name, block, instruction, message in [
        ("softmax", "total", "avx2.dot_u8s8", "cannot become `avx2.dot_u8s8`"),
        ("matmul", "c", "avx2.dot_u8s8", "cannot become `avx2.dot_u8s8`"),
        ("matmul", "c", "nothing", "there is no instruction `nothing`"),
    ]:
        s = Schedule(kernel(name))
        program = s.program
        with pytest.raises(ScheduleError, match=message) as caught:
            auto_tensorize(s, block, instruction)
        assert s.program is program and "^^^" in str(caught.value)
    s = Schedule(parse(CONV))
    s.split(s.loops("c")[0], 4)
    program = s.program
    with pytest.raises(ScheduleError, match="is not a loop of its own"):
        auto_tensorize(s, "c", "avx2.dot_u8s8")
    assert s.program is program


SIGNS = {"s8s8": ("i8", "i8"), "u8u8": ("u8", "u8"), "u8s8": ("u8", "i8")}


@pytest.mark.parametrize("signs", SIGNS)
def test_products_of_2x8_by_8x2_run_on_aarch64(signs: str, tmp_path: Path) -> None:
    """In qemu-user, where that is installed; sums stay in registers."""
    left, right = SIGNS[signs]
    func = parse(MATMUL.format(k=13, m=21).replace("u8, n", f"{left}, n").replace("i8, 13", f"{right}, 13"))
    s = Schedule(func)
    auto_tensorize(s, "c", f"i8mm.mmla_{signs}", in_registers=4)
    verify(s.program)
    pliant.export(s, "neoverse-n2@linux", tmp_path, name="mm")
    exported = Exported(tmp_path, "mm", "max")
    for n in (1, 7):
        *operands, expected = arrays(func, n)
        run_loop(func, [*operands, expected], [n])
        (got,) = exported.run(dict(zip("ab", operands, strict=True)))
        np.testing.assert_array_equal(got, expected)
