"""Names of targets, the facts behind them, and detection of this machine."""

from __future__ import annotations

import builtins
import dataclasses
import io
import platform
import sys
from typing import Any

import pytest

from pliant.codegen.emit import emit_assembly
from pliant.support.errors import UnsupportedError
from pliant.target import OSES, TABLE, Caches, aarch64, known_names, native, target, x86


def test_levels_of_x86() -> None:
    v2, v3, v4 = (target(f"llvm:x86-64-v{i}") for i in (2, 3, 4))
    assert (v2.vector_bits, v2.n_vector_registers, v2.has_fma, v2.has_f16c) == (128, 16, False, False)
    assert (v3.vector_bits, v3.n_vector_registers, v3.has_fma, v3.has_f16c) == (256, 16, True, True)
    assert (v4.n_vector_registers, v4.has_fma, v4.has_f16) == (32, True, False)
    assert {t.triple for t in (v2, v3, v4)} == {"x86_64-unknown-none-elf"}
    assert {t.pointer_bits for t in (v2, v3, v4)} == {64}


def test_width_follows_the_units() -> None:
    assert target("llvm:znver4").vector_bits == 512
    assert target("llvm:znver4").n_vector_registers == 32
    assert target("llvm:sapphirerapids").vector_bits == 512
    assert target("llvm:sapphirerapids").has_f16
    assert target("llvm:znver3").n_vector_registers == 16


def test_arm_and_features() -> None:
    a72, a76 = target("llvm:cortex-a72"), target("llvm:cortex-a76+dotprod")
    assert a72.arch == "aarch64"
    assert (a72.vector_bits, a72.n_vector_registers, a72.has_fma, a72.has_f16c) == (128, 32, True, True)
    assert (a72.has_f16, a76.has_f16) == (False, True)
    assert "dotprod" in a76.features
    assert "dotprod" not in a72.features
    assert "dotprod" in target("llvm:cortex-a72+dotprod").features


def test_wasm() -> None:
    plain, simd = target("wasm"), target("wasm+simd128")
    assert plain.kind == simd.kind == "wasm"
    assert (plain.pointer_bits, plain.has_fma, plain.has_f16c) == (32, False, False)
    assert "simd128" in simd.features
    assert "simd128" not in plain.features
    assert "simd128" in target("wasm+relaxed-simd").features


def test_features_bring_what_they_need() -> None:
    wide = target("llvm:x86-64+avx512vnni")
    assert {"avx512f", "avx2", "avx", "fma", "sse4.2"} <= set(wide.features)
    assert wide.has_fma


def test_equality_is_of_facts_not_of_spelling() -> None:
    a, b = target("llvm:cortex-a76"), target("llvm:cortex-a76+dotprod")  # it has dotprod already
    assert a == b
    assert hash(a) == hash(b)
    assert (str(a), str(b)) == ("llvm:cortex-a76", "llvm:cortex-a76+dotprod")
    assert a != target("llvm:cortex-a72")
    assert target(a) is a


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("znver33", "`znver3`"),
        ("llvm:znver33", "`znver3`"),
        ("llvm:x86_64-v3", "`x86-64-v3`"),
        ("cortex-a67", "`cortex-a76`"),
        ("natve", "`native`"),
        ("risc-v64", "`riscv64`"),
        ("aarch64@andriod", "`android`"),
        ("riscv64+zvl265b", "`zvl256b`"),
        ("llvm:cortex-a76+dotprd", "`dotprod`"),
        ("wasm+simd", "`simd128`"),
        ("llvm:znver3+neon", "feature `neon`"),
    ],
)
def test_bad_names_show_near_ones(name: str, near: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        target(name)
    assert near in str(caught.value)
    assert caught.value.help


@pytest.mark.parametrize(
    "name",
    [
        "",
        "llvm:",
        "cuda",
        "+avx2",
        "wasm+",
        "llvm:wasm",
        "x86-64-v3:llvm",
        "native+avx2",
        "native@linux",
        "wasm@linux",
        "aarch64@",
        "riscv64@android",
        "llvm:native",
        "@linux",
        "webgpu",
        "web+simd128",
        "wasm:x",
    ],
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        target(name)
    assert caught.value.what.count("\n") == 0 and len(caught.value.what) < 140


def test_one_grammar() -> None:
    """`llvm:` may be left out; the system changes conventions and nothing else; every name of the table is one."""
    assert target("x86-64-v3") == target("llvm:x86-64-v3") and target("aarch64") == target("llvm:generic")
    assert target("znver3@windows").call_conv == "win64cc" and target("znver3@linux").call_conv == ""
    assert target("znver3@linux") == target("znver3@none") != target("znver3@windows")
    assert [("reserve-x18" in target(f"aarch64@{os}").features) for os in OSES] == [False, True, True, True, False]
    assert target("aarch64@android").convention != target("aarch64@linux").convention
    assert target("llvm:cortex-a72+dotprod@android").os == "android" and target("riscv64@none").os == "none"
    for row in TABLE:
        for name in row.examples:
            assert target(name).name == name


def test_riscv() -> None:
    scalar, vector, x60 = target("riscv64"), target("riscv64+v"), target("spacemit-x60")
    assert {t.arch for t in (scalar, vector, x60)} == {"riscv64"}
    assert [(t.vector_bits, t.n_vector_registers) for t in (scalar, vector, x60)] == [(128, 8), (128, 32), (256, 32)]
    assert "zvl128b" in vector.features and "v" not in scalar.features and scalar.has_fma


IR = """
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
define void @fused(ptr %p) {
  %v = load <8 x float>, ptr %p
  %w = call <8 x float> @llvm.fma.v8f32(<8 x float> %v, <8 x float> %v, <8 x float> %v)
  store <8 x float> %w, ptr %p
  ret void
}
define void @wide(ptr %p) {
  %v = load <8 x float>, ptr %p
  %w = fmul <8 x float> %v, %v
  store <8 x float> %w, ptr %p
  ret void
}
define void @integers(ptr %p) {
  %v = load <16 x i32>, ptr %p
  %w = mul <16 x i32> %v, %v
  store <16 x i32> %w, ptr %p
  ret void
}
"""


@pytest.mark.parametrize("name", [n for n in known_names() if n != "native" and target(n).kind != "c"])
def test_llvm_agrees(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """LLVM knows every CPU and feature of the tables, and its own tables say the same of FMA and vectors."""
    machine = target(name)
    emit_assembly(IR, machine)
    assert "recognized" not in capfd.readouterr().err
    # RISC-V's extensions are no part of its generic CPU: there the features are what LLVM is told.
    theirs = emit_assembly(IR, machine if machine.arch == "riscv64" else dataclasses.replace(machine, features=()))
    # Of wasm's relaxed multiply-add LLVM makes nothing but what asks for it by name (tests/parity/test_relaxed_simd.py).
    assert any(word in theirs for word in ("vfmadd", "fmla", "fmadd.s")) == (machine.has_fma and machine.kind != "wasm")
    if machine.arch == "x86_64":
        assert ("%ymm" in theirs) == ("avx" in machine.features)
        assert ("%zmm" in theirs) == ("avx512f" in machine.features)


def test_targets_of_c_source() -> None:
    """One lane; a CPU says whether it multiplies and adds at once, and how wide its pointers are."""
    assert target("c") == target("c:generic")
    assert [target(f"c{cpu}").has_fma for cpu in ("", ":cortex-m4", ":cortex-m7", ":cortex-m33", ":cortex-m55")] == [
        False,
        True,
        True,
        True,
        True,
    ]
    assert (target("c:cortex-m7").vector_bits, target("c:cortex-m7").pointer_bits) == (32, 32)
    for name, message in (("c:m7", "unknown CPU `m7`"), ("c+fma", "takes no features"), ("c@linux", "takes no operating system")):
        with pytest.raises(UnsupportedError, match=message):
            target(name)


def test_native_matches_llvm_on_this_machine() -> None:
    import llvmlite.binding as llvm

    machine = native.detect()
    assert machine.name == "native"
    theirs = {f for f, on in llvm.get_host_cpu_features().items() if on}
    known = x86.FEATURES if machine.arch == "x86_64" else aarch64.FEATURES
    assert set(machine.features) - {"reserve-x18"} <= theirs | {"sse2", "neon"}
    assert theirs & known <= set(machine.features)


def _pretend(monkeypatch: pytest.MonkeyPatch, machine: str, cpuinfo: str) -> None:
    """Let detection see a Linux machine with this /proc/cpuinfo and no /sys."""
    real = builtins.open

    def fake(path: Any, *args: Any, **kwargs: Any) -> Any:
        if path == "/proc/cpuinfo":
            return io.StringIO(cpuinfo)
        if str(path).startswith("/sys/"):
            raise FileNotFoundError(path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(builtins, "open", fake)


V2 = "fpu sse sse2 pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm"
V3 = V2 + " avx f16c fma movbe abm bmi1 avx2 bmi2"
V4 = V3 + " avx512f avx512dq avx512cd avx512bw avx512vl"


@pytest.mark.parametrize(
    ("flags", "tune", "bits", "registers"),
    [
        ("fpu sse sse2", "x86-64", 128, 16),  # older than the baseline: the baseline
        (V2, "x86-64", 128, 16),
        (V3, "haswell", 256, 16),
        (V3 + " sse4a clzero clwb vaes", "znver3", 256, 16),
        (V4 + " sse4a avx512_vnni avx512_bf16", "znver4", 512, 32),
        (V4 + " sse4a avx512_vnni avx_vnni", "znver5", 512, 32),
        (V4, "skylake-avx512", 512, 32),
        (V4 + " avx512_vnni avx512_bf16 amx_tile avx_vnni", "sapphirerapids", 512, 32),
    ],
)
def test_detection_on_x86(monkeypatch: pytest.MonkeyPatch, flags: str, tune: str, bits: int, registers: int) -> None:
    _pretend(monkeypatch, "x86_64", f"processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: {flags}\nbugs\t: x\n")
    found = native.detect.__wrapped__()
    assert (found.cpu, found.tune, found.vector_bits, found.n_vector_registers) == ("x86-64", tune, bits, registers)
    assert "sse4.2" in found.features
    assert ("avx512vnni" in found.features) == ("avx512_vnni" in flags)
    assert found.caches.l1 >= 16 << 10


def test_a_machine_can_be_taken_for_a_lesser_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """PLIANT_CPU leaves what the machine and the named CPU both have; a better CPU adds nothing."""
    _pretend(monkeypatch, "x86_64", f"flags\t\t: {V3} sse4a clzero clwb vaes\n")
    for cpu, number, bits in (("x86-64", 1, 128), ("x86-64-v2", 2, 128), ("x86-64-v3", 3, 256), ("znver5", 3, 256)):
        found = native.detect.__wrapped__(cpu)
        assert (found.name, found.tune, found.vector_bits) == ("native", "znver3", bits)
        assert set(found.features) == x86.level(number) and found.has_fma == (number > 2)
    with pytest.raises(UnsupportedError, match="PLIANT_CPU is `x86-64-v9`, which is no CPU of this architecture"):
        native.detect.__wrapped__("x86-64-v9")


def test_native_follows_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_CPU", "x86-64" if native.detect().arch == "x86_64" else "generic")
    assert set(target("native").features) - {"reserve-x18"} == {"sse2" if native.detect().arch == "x86_64" else "neon"}


def test_detection_on_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    features = "fp asimd aes crc32 atomics fphp asimdhp asimddp sve"
    _pretend(monkeypatch, "aarch64", f"processor\t: 0\nFeatures\t: {features}\n")
    found = native.detect.__wrapped__()
    assert found.features == ("crc", "dotprod", "fullfp16", "lse", "neon")
    assert found.has_f16
    assert found.caches == Caches(32 << 10, 512 << 10, 2 << 20)


def test_detection_on_an_unknown_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, "s390x", "")
    with pytest.raises(UnsupportedError, match="s390x"):
        native.detect.__wrapped__()


@pytest.mark.parametrize(("system", "convention"), [("win32", "win64cc"), ("linux", ""), ("darwin", "")])
def test_conventions_of_systems(monkeypatch: pytest.MonkeyPatch, system: str, convention: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert target("llvm:znver3").call_conv == convention
    assert ("reserve-x18" in target("llvm:apple-m1").features) == (system != "linux")
