"""Tensor instructions: the semantics (description) and the way to use it (implementation) of each, both as loop programs.

(Users declare theirs by `pliant.instruction`: the same records, in `declared.py`.)

    avx512vnni.dot_u8s8: 16 sums of four products of u8 and i8

    description       for j, k in grid(16, 4): c[j] += cast(i32, a[k]) * cast(i32, b[j, k])
    implementation    for j in vector(16): c[j] += cast(i32, a[0]) * cast(i32, b[j, 0]) + …

The implementation is a loop program too, so the interpreter runs it, any target can compile it, and tests compare both bit for bit. The
shapes of the parameters are the memory layout that the instruction requires: four neighboring bytes for each lane of `b`.

The code generator emits the machine instruction in one of two ways. The implementation of a record with a form (`llvm`, `c`) is replaced
by that text (`codegen/llvm_instruction.py`). Sums of products of small integers need no form: the code generator selects dot-product
instructions for them wherever they occur, also in kernels that are not scheduled (`codegen/llvm_dot.py`).
"""

from __future__ import annotations

from ..support.record import dataclass
from .declared import DECLARED
from .machine import Target


@dataclass(frozen=True, slots=True)
class Instruction:
    """A tensor instruction: the machines that have it, and its semantics as the text of two loop programs over the same parameters."""

    name: str
    arch: str
    needs: tuple[str, ...]  # features, as LLVM spells them
    description: str
    implementation: str
    remark: str = ""
    constants: int = 0  # extra registers, beside those of its factors and sums
    widened: str = ""  # the same with 16-bit left factors: widening them once is better than at each use
    llvm: str = ""  # an LLVM call over {parameters}; "" if LLVM selects the implementation as it is
    c: str = ""  # a C expression over pointers to the first elements of {parameters}
    c_if: str = ""  # the preprocessor condition that the C compiler has it; "" if all have
    headers: tuple[str, ...] = ()  # the headers of the C expression, such as immintrin.h

    def is_on(self, target: Target) -> bool:
        """True if a machine has the instruction. For C code only the compiler knows, so every instruction with a C form counts."""
        if target.kind == "c":
            return bool(self.c)
        return target.arch == self.arch and set(self.needs) <= set(target.features)


_HEAD = "from pliant import InOut, Tensor, block, cast, f32, f64, fma, grid, i16, i32, i8, kernel, u8, vector\n"


def _dot(
    name: str, arch: str, needs: tuple[str, ...], lanes: int, left: str, right: str, group: int, low: bool = False, widened: str = ""
) -> Instruction:
    """Returns the record of a dot-product instruction: `lanes` sums of `group` products; with `low` the left factors have seven bits."""
    factor = "(a[{}] & 127)" if low else "a[{}]"
    head = f"\n@kernel\ndef f(c: InOut[i32, {lanes}], a: Tensor[{left}, {group}], b: Tensor[{right}, {lanes}, {group}]) -> None:\n"
    description = f"""{_HEAD}{head}    for j, k in grid({lanes}, {group}):
        with block("c", "SR", j, k) as (vj, vk):
            c[vj] += cast(i32, {factor.format("vk")}) * cast(i32, b[vj, vk])
"""
    terms = " + ".join(f"cast(i32, {factor.format(t)}) * cast(i32, b[j, {t}])" for t in range(group))
    implementation = f"{_HEAD}{head}    for j in vector({lanes}):\n        c[j] += {terms}\n"
    return Instruction(name, arch, needs, description, implementation, "left factors below 128" if low else "", 1 if low else 0, widened)


def _pairs(machine: str, arch: str, needs: tuple[str, ...], lanes: int, lefts: str, rights: str, suffix: str = "") -> list[Instruction]:
    """Returns instructions that sum pairs of 8-bit products, which the machine multiplies as 16 bits.

    And the same with 16-bit left factors.
    """
    rows = [_dot(f"{machine}.dot_s16{b}{suffix}", arch, needs, lanes, "i16", _T[b], 2) for b in rights.split()]
    for a in lefts.split():
        rows += [
            _dot(f"{machine}.dot_{a}{b}{suffix}", arch, needs, lanes, _T[a], _T[b], 2, widened=f"{machine}.dot_s16{b}{suffix}")
            for b in rights.split()
        ]
    return rows


def _fma(name: str, arch: str, needs: tuple[str, ...], dtype: str, lanes: int) -> Instruction:
    """Returns the record of a fused multiply-add instruction on vectors."""
    head = f"\n@kernel\ndef f(c: InOut[{dtype}, {lanes}], a: Tensor[{dtype}, 1], b: Tensor[{dtype}, {lanes}]) -> None:\n"
    description = f"""{_HEAD}{head}    for j in grid({lanes}):
        with block("c", "S", j) as vj:
            c[vj] = fma(a[0], b[vj], c[vj])
"""
    implementation = f"{_HEAD}{head}    for j in vector({lanes}):\n        c[j] = fma(a[0], b[j], c[j])\n"
    return Instruction(name, arch, needs, description, implementation)


def _mmla(left: str, right: str, intrinsic: str, in_c: str) -> Instruction:
    """Returns the record of Arm's I8MM instruction: a 2x8 by 8x2 product of bytes, with the right-hand side stored by columns."""
    head = f"\n@kernel\ndef f(c: InOut[i32, 2, 2], a: Tensor[{_T[left]}, 2, 8], b: Tensor[{_T[right]}, 2, 8]) -> None:\n"
    description = f"""{_HEAD}{head}    for i, j, k in grid(2, 2, 8):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            c[vi, vj] += cast(i32, a[vi, vk]) * cast(i32, b[vj, vk])
"""
    terms = " + ".join(f"cast(i32, a[i, {k}]) * cast(i32, b[j, {k}])" for k in range(8))
    implementation = f"{_HEAD}{head}    for i in range(2):\n        for j in vector(2):\n            c[i, j] += {terms}\n"
    llvm = f"<4 x i32> @llvm.aarch64.neon.{intrinsic}.v4i32.v16i8(<4 x i32> {{c}}, <16 x i8> {{a}}, <16 x i8> {{b}})"
    sums = in_c[-3:]  # s32 or u32
    pointer = f"({sums.replace('s', 'int').replace('u', 'uint')}_t *){{c}}"
    c = f"vst1q_{sums}({pointer}, {in_c}(vld1q_{sums}({pointer}), vld1q_{left}({{a}}), vld1q_{right}({{b}})))"
    name = f"i8mm.mmla_{left}{right}"
    macro = "defined(__ARM_FEATURE_MATMUL_INT8)"
    return Instruction(name, "aarch64", ("i8mm",), description, implementation, llvm=llvm, c=c, c_if=macro, headers=("arm_neon.h",))


def _table() -> dict[str, Instruction]:
    """Returns the built-in tensor instructions by name."""
    x86, arm, wasm = "x86_64", "aarch64", "wasm32"
    vnni512 = ("avx512vl", "avx512vnni")
    signs = (("u8", "s8"), ("s8", "u8"), ("s8", "s8"))
    rows = [
        *(_dot(f"avx512vnni.dot_{a}{b}", x86, vnni512, 16, _T[a], _T[b], 4) for a, b in signs),
        *(_dot(f"avx512vnni.dot_{a}{b}_x{n}", x86, vnni512, n, _T[a], _T[b], 4) for a, b in signs for n in (8, 4)),
        _dot("avx512vnni.dot_s16s16", x86, vnni512, 16, "i16", "i16", 2),
        *(_dot(f"avxvnni.dot_{a}{b}", x86, ("avxvnni",), 8, _T[a], _T[b], 4) for a, b in signs),
        *(_dot(f"avxvnni.dot_{a}{b}_x4", x86, ("avxvnni",), 4, _T[a], _T[b], 4) for a, b in signs),
        *_pairs("avx2", x86, ("avx2",), 8, "u8 s8", "u8 s8"),
        *_pairs("avx2", x86, ("avx2",), 4, "u8 s8", "u8 s8", "_x4"),
        _dot("avx2.dot_s16s16", x86, ("avx2",), 8, "i16", "i16", 2),
        _dot("avx2.dot_u7s8", x86, ("avx2",), 8, "u8", "i8", 4, low=True),
        *(_dot(f"neon.dot_{a}{b}", arm, ("dotprod",), 4, _T[a], _T[b], 4) for a, b in (("s8", "s8"), ("u8", "u8"), ("u8", "s8"))),
        _mmla("s8", "s8", "smmla", "vmmlaq_s32"),
        _mmla("u8", "u8", "ummla", "vmmlaq_u32"),
        _mmla("u8", "s8", "usmmla", "vusmmlaq_s32"),
        *_pairs("wasm", wasm, ("simd128",), 4, "s8 u8", "s8"),
        _dot("wasm.dot_s16s16", wasm, ("simd128",), 4, "i16", "i16", 2),
        _dot("wasm.relaxed_dot_u7s8", wasm, ("relaxed-simd",), 4, "u8", "i8", 4, low=True),
        *(_fma(f"fma.{d}x{n}", x86, ("fma",), d, n) for d, n in (("f32", 4), ("f32", 8), ("f64", 4))),
        *(_fma(f"fma.{d}x{n}", x86, ("avx512f",), d, n) for d, n in (("f32", 16), ("f64", 8))),
        *(_fma(f"neon.fma_{d}x{n}", arm, ("neon",), d, n) for d, n in (("f32", 4), ("f64", 2))),
    ]
    return {i.name: i for i in rows}


_T = {"u8": "u8", "s8": "i8"}  # the dtypes of the letters in instruction names
INSTRUCTIONS: dict[str, Instruction] = _table()


def instructions_of(target: Target) -> list[Instruction]:
    """Returns the built-in tensor instructions that a target's CPU has."""
    return [i for i in INSTRUCTIONS.values() if i.is_on(target)]


def declared_for(target: Target) -> list[Instruction]:
    """Returns the user-declared instructions that a machine has, the latest declaration first."""
    return [i for i in reversed(DECLARED.values()) if i.is_on(target)]


def find_instruction(name: str) -> Instruction | None:
    """Returns the tensor instruction of that name, built-in or declared; or None."""
    return INSTRUCTIONS.get(name) or DECLARED.get(name)


def instruction_names() -> list[str]:
    """Returns the names of all tensor instructions, declared ones first."""
    return [*DECLARED, *INSTRUCTIONS]
