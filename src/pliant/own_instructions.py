"""`pliant.instruction`: declares a user's tensor instruction by its description, its implementation, and its LLVM or C form.

    @kernel
    def lanes(c: InOut[i32, 4], a: Tensor[i8, 4], b: Tensor[i8, 4, 4]) -> None:        # how: the implementation
        for j in vector(4):
            c[j] += cast(i32, a[0]) * cast(i32, b[j, 0]) + …

    @pliant.instruction(
        arch="aarch64", features=("dotprod",), implementation=lanes,
        llvm="<4 x i32> @llvm.aarch64.neon.sdot.v4i32.v16i8(<4 x i32> {c}, <16 x i8> {a}, <16 x i8> {b})",
    )
    def sdot(c: InOut[i32, 4], a: Tensor[i8, 4], b: Tensor[i8, 4, 4]) -> None:         # what: the description
        for j, k in grid(4, 4):
            with block("c", "SR", j, k) as (vj, vk):
                c[vj] += cast(i32, a[vk]) * cast(i32, b[vj, vk])

A declaration is checked first: the interpreter compares description and implementation, and if this machine has the instruction, the LLVM
form runs on it. From then on the default rules, `Schedule.tensorize` and `auto_tensorize` can use the instruction (docs/instructions.md,
docs/design/0021-instructions.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .api import Kernel, kernel
from .check_instruction import check_arguments, check_description, check_form, check_same, check_where, check_with_llvm, run_on_machine
from .loop.attributes import NO_ATTRS
from .loop.printer import print_func
from .loop.stmt import Func
from .support.errors import Error
from .support.source import caller_span
from .target import declared
from .target import target as find_target
from .target.instructions import INSTRUCTIONS, Instruction


class DeclaredInstruction:
    """A tensor instruction that a user declared; `withdraw` removes it."""

    def __init__(self, record: Instruction) -> None:
        self.record = record
        self.name = record.name

    def withdraw(self) -> None:
        """Removes the instruction; programs compiled from now on do not use it."""
        declared.withdraw(self.name)

    def __repr__(self) -> str:
        return f"{self.name} on {self.record.arch} with {', '.join(self.record.needs) or 'nothing else'}\n\n{self.record.description}"


def instruction(
    *,
    arch: str,
    features: Sequence[str] = (),
    implementation: Callable[..., Any] | Kernel | None = None,
    llvm: str = "",
    c: str = "",
    c_if: str = "",
    headers: Sequence[str] = (),
    name: str | None = None,
) -> Callable[[Callable[..., Any] | Kernel], DeclaredInstruction]:
    """Declares a tensor instruction; decorates the loop program that describes what it computes.

    `arch` and `features` say which machines have it, as LLVM spells them. `implementation` is the loop program that replaces a matched
    tile (default: the description itself). `llvm` is the LLVM intrinsic call to emit, `c` the C expression; see docs/instructions.md.
    """
    where = caller_span()

    def declare(description: Callable[..., Any] | Kernel) -> DeclaredInstruction:
        try:
            described = _func(description)
            called = described.name if name is None else name
            implemented = _plain(described) if implementation is None else _func(implementation)
            record = Instruction(
                called,
                arch,
                tuple(features),
                _text(described),
                _text(implemented),
                llvm=llvm.strip(),
                c=c.strip(),
                c_if=c_if.strip(),
                headers=tuple(headers),
            )
            _check(record, described, implemented)
        except Error as error:
            raise error.at(where).with_traceback(None) from None
        return DeclaredInstruction(record)

    return declare


def _func(program: Callable[..., Any] | Kernel) -> Func:
    return program.func if isinstance(program, Kernel) else kernel(program).func


def _plain(description: Func) -> Func:
    """Returns the description as an implementation: the same loops, without blocks."""
    from .loop.passes.lower_blocks import lower_blocks

    return lower_blocks(description)


def _text(func: Func) -> str:
    return print_func(func.with_(name="f", attrs=NO_ATTRS))


def _check(record: Instruction, description: Func, implementation: Func) -> None:
    """Checks the declaration and registers the instruction; raises Error, with the registry unchanged, if it is wrong."""
    if record.name in INSTRUCTIONS:
        raise Error(f"there is a built-in instruction `{record.name}`", help='give yours another name: name="mine"')
    check_where(record)
    check_arguments(record.name, description, implementation)
    check_description(record.name, description)
    check_same(record.name, description, implementation)
    check_form(record, description)
    before = declared.DECLARED.get(record.name)
    declared.declare(record)
    try:
        if record.llvm:
            check_with_llvm(record, implementation)
        if record.llvm and record.is_on(find_target("native")):
            run_on_machine(record, implementation)
    except BaseException:
        declared.withdraw(record.name)
        if before is not None:
            declared.declare(before)
        raise
