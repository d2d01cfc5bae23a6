"""References of RISC-V code: what the patched instructions address, decoded here by the formats of the instruction set manual."""

from __future__ import annotations

import struct

import pytest
from link_program import EXPORTS, PROGRAM
from test_link_elf import ARM_EXPORTS, ARM_PROGRAM

from pliant.codegen.emit import emit_object
from pliant.codegen.link_elf import link, undefined_symbols
from pliant.codegen.relocations import PATCHERS, Place
from pliant.support.errors import InternalError
from pliant.target import target

AUIPC, ADDI, LOAD, JALR = 0x17, 0x13, 0x03, 0x67
RISCV = 243


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def pair(code: bytes, at: int) -> tuple[int, int, int]:
    """What the `auipc` at or after `at` addresses with the next instruction that uses its register, that one's opcode, and its place."""
    while True:
        (word,) = struct.unpack_from("<I", code, at)
        if word & 0x7F == AUIPC:
            break
        at += 4 if word & 3 == 3 else 2
    base, register, after = at + signed(word >> 12, 20) * 4096, word >> 7 & 31, at + 4
    while True:
        (second,) = struct.unpack_from("<I", code, after)
        if second & 3 == 3 and second >> 15 & 31 == register and second & 0x7F in (ADDI, LOAD, JALR):
            return base + signed(second >> 20, 12), second & 0x7F, after
        after += 4 if second & 3 == 3 else 2


@pytest.fixture(scope="module", params=["riscv64", "riscv64+v"])
def blob(request: pytest.FixtureRequest) -> tuple[bytes, dict[str, int]]:
    linked = link(emit_object(ARM_PROGRAM, target(request.param)), ARM_EXPORTS)
    return linked.code, linked.exports


def test_addresses_of_constants(blob: tuple[bytes, dict[str, int]]) -> None:
    code, exports = blob
    words = struct.pack("<4Q", 1, 2, 3, 4)
    assert pair(code, exports["address"])[:2] == (code.index(words), ADDI)
    assert pair(code, exports["load"])[0] in (code.index(words), code.index(words) + 24)
    pad = pair(code, exports["far"])[0]
    assert code[pad : pad + 70008] == bytes(70000) + (0x0123456789ABCDEF).to_bytes(8, "little")


def test_the_table_of_addresses_is_skipped(blob: tuple[bytes, dict[str, int]]) -> None:
    """What loaded an address from the table computes it."""
    code, exports = blob
    place, opcode, _ = pair(code, exports["got"])
    assert opcode == ADDI and struct.unpack_from("<I", code, place) == (9,)


def test_calls(blob: tuple[bytes, dict[str, int]]) -> None:
    code, exports = blob
    tail, calls = pair(code, exports["tail"]), pair(code, exports["calls"])
    assert tail[1] == calls[1] == JALR and tail[0] == calls[0]
    assert struct.unpack_from("<I", code, tail[0])[0] & 0xFE00707F == 0x0200003B  # mulw, the first instruction of the callee


def test_stores_have_their_low_bits_apart() -> None:
    """What `auipc` and a store address together is the symbol."""
    for distance in (0x12345, -0x12345, 0x7FF, 0x800, -0x800, -0x801, 0x12FFF):
        code = bytearray(struct.pack("<2I", AUIPC | 5 << 7, 0x23 | 2 << 12 | 5 << 15 | 6 << 20))  # auipc t0; sw t1, 0(t0)
        base = 0x100000
        content = bytearray(base) + code
        PATCHERS[RISCV]([Place(content, base, 23, base + distance, 0, "x"), Place(content, base + 4, 25, base, 0, "x")])
        high, store = struct.unpack_from("<2I", content, base)
        low = signed(store >> 25 << 5 | store >> 7 & 31, 12)
        assert signed(high >> 12, 20) * 4096 + low == distance
        assert store & 0x1FFF07F == 0x23 | 2 << 12 | 5 << 15 | 6 << 20


@pytest.mark.parametrize("kind", [0, 1, 2, 16, 24, 26, 35, 39, 51, 300])
def test_what_a_blob_cannot_have_is_refused(kind: int) -> None:
    """Absolute addresses, a low part whose high part is not there, half of a distance."""
    with pytest.raises(InternalError, match="in a way a blob cannot have"):
        PATCHERS[RISCV]([Place(bytearray(16), 0, kind, 8, 0, "x")])


def test_no_undefined_symbols() -> None:
    for level in (0, 1, 2, 3):
        for program in (PROGRAM, ARM_PROGRAM):
            assert undefined_symbols(emit_object(program, target("riscv64"), level)) == []
        link(emit_object(PROGRAM, target("riscv64"), level), EXPORTS)


def test_tables_of_jumps_lead_to_their_cases() -> None:
    """A switch, not optimized: each entry is the distance from the table to a case, the first three of which begin with `li a0, n`."""
    linked = link(emit_object(PROGRAM, target("riscv64"), 0), EXPORTS)
    table = pair(linked.code, linked.exports["choose"])[0]
    cases = [table + distance for distance in struct.unpack_from("<6i", linked.code, table)]
    assert [struct.unpack_from("<H", linked.code, at)[0] for at in cases[:3]] == [0x4501 | n << 2 for n in (11, 0, 1)]
    assert len(set(cases)) == 6 and all(linked.exports["choose"] < at < linked.exports["choose"] + 256 for at in cases)
