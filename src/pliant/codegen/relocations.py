"""Resolves the relocations of LLVM's ELF objects for each processor.

Numbers and formulas are those of the processors' supplements to the ELF specification (S symbol, A addend, P place). Everything is
PC-relative, since a blob may be mapped anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..support.errors import InternalError
from ..support.record import dataclass


@dataclass(slots=True)
class Place:
    """One relocation: the code, the place P, the type, the symbol S, the addend A, and a name for messages."""

    code: bytearray
    p: int
    kind: int
    s: int
    a: int
    name: str

    def fit(self, value: int, bits: int, unit: int = 1) -> int:
        """Return `value`, in units, as a signed field of `bits` bits; raises an error if it does not fit."""
        if value % unit or not -(1 << bits - 1) <= value // unit < 1 << bits - 1:
            raise InternalError(f"the reference to `{self.name}` does not reach: {value} bytes")
        return value // unit & (1 << bits) - 1

    def write(self, value: int, size: int = 4) -> None:
        if self.p + size > len(self.code):
            raise InternalError("LLVM's object cannot be read: a relocation lies at the end of the code")
        self.code[self.p : self.p + size] = value.to_bytes(size, "little")

    def read(self) -> int:
        return int.from_bytes(self.code[self.p : self.p + 4], "little")

    def refused(self) -> InternalError:
        return InternalError(f"generated code refers to `{self.name}` in a way a blob cannot have (type {self.kind})")


def _patch_x86_64(at: Place) -> None:
    match at.kind:
        case 2 | 4:  # PC32, PLT32: S + A - P
            at.write(at.fit(at.s + at.a - at.p, 32))
        case 24:  # PC64: S + A - P
            at.write(at.fit(at.s + at.a - at.p, 64), 8)
        case 9 | 41 | 42:  # GOTPCREL, GOTPCRELX, REX_GOTPCRELX
            _skip_got_x86_64(at)
        case _:
            raise at.refused()


def _skip_got_x86_64(at: Place) -> None:
    """Relax an instruction that loads an address from the GOT into one that computes it, as the psABI describes.

    Raises an InternalError for other instructions.
    """
    if at.p < 2 or at.a != -4:
        raise at.refused()
    opcode, operand = at.code[at.p - 2], at.code[at.p - 1]
    distance = at.s + at.a - at.p
    if opcode == 0x8B:  # mov name@GOTPCREL(%rip), reg -> lea name(%rip), reg
        at.code[at.p - 2] = 0x8D
        at.write(at.fit(distance, 32))
    elif (opcode, operand) == (0xFF, 0x15):  # call *name@GOTPCREL(%rip) -> addr32 call name
        at.code[at.p - 2 : at.p] = b"\x67\xe8"
        at.write(at.fit(distance, 32))
    elif (opcode, operand) == (0xFF, 0x25):  # jmp *name@GOTPCREL(%rip) -> jmp name; nop
        at.p -= 1
        at.code[at.p - 1] = 0xE9
        at.write(at.fit(distance + 1, 32))
        at.code[at.p + 4] = 0x90
    else:
        raise at.refused()


_LOAD_SCALES = {277: 1, 278: 1, 284: 2, 285: 4, 286: 8, 299: 16}  # ADD, then LDST8, 16, 32, 64, 128 _ABS_LO12_NC


def _patch_aarch64(at: Place) -> None:
    target, old = at.s + at.a, at.read()
    match at.kind:
        case 260:  # PREL64
            at.write(at.fit(target - at.p, 64), 8)
        case 261:  # PREL32
            at.write(at.fit(target - at.p, 32))
        case 273:  # LD_PREL_LO19
            at.write(old & ~(0x7FFFF << 5) | at.fit(target - at.p, 19, 4) << 5)
        case 274:  # ADR_PREL_LO21
            at.write(_adr(old, at.fit(target - at.p, 21)))
        case 275 | 311:  # ADR_PREL_PG_HI21, ADR_GOT_PAGE: the distance in pages
            at.write(_adr(old, at.fit((target & ~0xFFF) - (at.p & ~0xFFF), 21, 4096)))
        case 277 | 278 | 284 | 285 | 286 | 299:  # the low 12 bits, in units of the access
            low, scale = target & 0xFFF, _LOAD_SCALES[at.kind]
            if low % scale:
                raise InternalError(f"the constant `{at.name}` is not aligned to {scale} bytes")
            at.write(old & ~(0xFFF << 10) | low // scale << 10)
        case 312:  # LD64_GOT_LO12_NC: ldr x, [x, #lo12] of the table -> add x, x, #lo12 of the symbol
            if old >> 22 != 0x3E5:
                raise at.refused()
            at.write(0x91000000 | (target & 0xFFF) << 10 | old & 0x3FF)
        case 279:  # TSTBR14
            at.write(old & ~(0x3FFF << 5) | at.fit(target - at.p, 14, 4) << 5)
        case 280:  # CONDBR19
            at.write(old & ~(0x7FFFF << 5) | at.fit(target - at.p, 19, 4) << 5)
        case 282 | 283:  # JUMP26, CALL26
            at.write(old & ~0x3FFFFFF | at.fit(target - at.p, 26, 4))
        case _:
            raise at.refused()


def _adr(old: int, value: int) -> int:
    """Encode `adr` or `adrp` with a new 21-bit immediate, whose low two bits are apart from the rest."""
    return old & 0x9F00001F | (value & 3) << 29 | (value >> 2) << 5


_PCREL_HI = (20, 23)  # GOT_HI20, PCREL_HI20


def _patch_riscv64(places: Sequence[Place]) -> None:
    """Patch RISC-V code: an address is an `auipc` and the low 12 bits in a second instruction, whose relocation names the `auipc`.

    Raises an InternalError for a type of relocation that is not supported.
    """
    high = {at.p: at for at in places if at.kind in _PCREL_HI}
    added, taken = ({at.p for at in places if at.kind == kind} for kind in (35, 39))
    for at in places:
        match at.kind:
            case 20 | 23:
                distance = at.s + at.a - at.p
                # The low part is signed, so the high part is rounded to compensate.
                at.write(at.read() & 0xFFF | at.fit(distance + 0x800 & ~0xFFF, 32) & ~0xFFF)
            case 24 | 25 if at.s in high:  # PCREL_LO12_I, PCREL_LO12_S
                first = high[at.s]
                low, old = first.s + first.a - first.p & 0xFFF, at.read()
                if first.kind == 20:  # ld rd, lo(rs) of the table -> addi rd, rs, lo of the symbol
                    if at.kind != 24 or old & 0x707F != 0x3003:
                        raise at.refused()
                    old = old & ~0x707F | 0x13
                if at.kind == 24:
                    at.write(old & 0xFFFFF | low << 20)
                else:
                    at.write(old & 0x1FFF07F | low >> 5 << 25 | (low & 31) << 7)
            case 18 | 19:  # CALL, CALL_PLT: auipc and jalr side by side
                distance = at.s + at.a - at.p
                at.write(at.read() & 0xFFF | at.fit(distance + 0x800 & ~0xFFF, 32) & ~0xFFF)
                at.p += 4
                at.write(at.read() & 0xFFFFF | (distance & 0xFFF) << 20)
            case 35 | 39 if at.p in added & taken:  # ADD32, SUB32: the distance of two addresses, in jump tables
                at.write(at.read() + (at.s + at.a if at.kind == 35 else -at.s - at.a) & 0xFFFFFFFF)
            case 57:  # 32_PCREL
                at.write(at.fit(at.s + at.a - at.p, 32))
            case _:
                raise at.refused()


def _each(patch: Callable[[Place], None]) -> Callable[[Sequence[Place]], None]:
    """Turn a function that patches one relocation into one that patches a list of them."""

    def run(places: Sequence[Place]) -> None:
        for at in places:
            patch(at)

    return run


# By the machine number (e_machine) in the header of an object.
PATCHERS: dict[int, Callable[[Sequence[Place]], None]] = {62: _each(_patch_x86_64), 183: _each(_patch_aarch64), 243: _patch_riscv64}
