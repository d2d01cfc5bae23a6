"""Error exits of generated functions (failed checks, cancel flag, callees' codes), and the state that functions of a module share.

A failure returns its code at once. `pliant.fail` (in `llvm.py`) writes the error record unless there is an error already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from ..dtype import i32
from ..loop.lowering import Watch
from ..loop.stmt import Check, Func
from ..support.names import unused_name
from ..support.record import dataclass
from ..target import Target
from .llvm_build import Declarations
from .llvm_dot import Dots
from .llvm_types import CANCELLED, Val, ctx_layout

ERROR_VALUES = 6  # values in an error record
_UNLIKELY = ", !prof !0"


@dataclass(slots=True)
class ModuleState:
    """The state that the functions of an LLVM module share: declarations, check sites, kernels, text of finished functions."""

    target: Target
    declarations: Declarations
    sites: list[Check] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    parallel: bool = False  # True if one of them has a parallel loop
    names: dict[Func, str] = field(default_factory=dict)  # the inner function of each program
    used: set[str] = field(default_factory=lambda: {"pliant.fail", "pliant.profile"})
    linkage: str = "internal"  # of inner functions
    signatures: dict[str, str] = field(default_factory=dict)  # parameter types of inner functions, by symbol
    called: dict[str, None] = field(default_factory=dict)  # inner functions called since it was last cleared
    watch: Watch | None = None  # called after each lowering pass
    prefix: str = ""  # begins every global name, so that functions of several states can be in one module

    def unique(self, name: str) -> str:
        """Return a global name that the module does not use yet."""
        return unused_name(self.prefix + name, self.used, ".")

    def site(self, check: Check) -> int:
        """Return the index of a check in the module's table; copies of it in an unrolled loop share one."""
        if check not in self.sites:
            self.sites.append(check)
        return self.sites.index(check)

    def inner(self, func: Func) -> str:
        """Return the symbol of a program's inner function; generates it at first use.

        A subclass implements it, here it raises NotImplementedError.
        """
        raise NotImplementedError


class Failures(Dots):
    """Emits the error exits of an LLVM function, and its whole text."""

    def __init__(self, state: ModuleState) -> None:
        super().__init__(state.declarations)
        self.state = state
        self.ctx = ctx_layout(state.target)
        self.cancel_pointer = ""

    def function_text(self, head: str) -> str:
        """Return the whole text of the function: allocations first, then its instructions."""
        width = self.target.vector_bits
        # LLVM splits vectors into registers of this width, even if the machine has wider ones.
        legal = max(width, self.form_bits)  # LLVM cannot split the operands of an intrinsic
        attributes = f' "prefer-vector-width"="{width}" "min-legal-vector-width"="{legal}"' if self.target.arch == "x86_64" else ""
        return "\n".join([f"define {head}{attributes} {{", "entry:", *self.entry, *self.register_lines(), *self.lines, "}"])

    def fail_unless(self, ok: Val, fail: Callable[[], str]) -> None:
        """Emit a branch: continue if `ok`, else run what `fail` emits and return the code (text) that it gives."""
        failed, fine = self.new_label("fail"), self.new_label("fine")
        self.branch_if(ok, fine, failed, _UNLIKELY)
        self.start_block(failed)
        with self.scope():
            self.line(f"ret i32 {fail()}")
        self.start_block(fine)

    def set_code(self, code: int) -> str:
        """Emit a write of a code without values into the error record; returns the code as text."""
        self.line(f'call void @"pliant.fail"(ptr %ctx, i64 {code}, i64 0{", i64 0" * ERROR_VALUES})')
        return str(code)

    def look_at_cancel(self) -> None:
        """Emit a check of the cancel flag: return CANCELLED if it is set."""
        if not self.cancel_pointer:
            self.cancel_pointer = f"%m{self._next}.cancel"
            at = f"%m{self._next}.at"
            self.entry.append(f"  {at} = getelementptr i8, ptr %ctx, i64 {self.ctx.cancel}")
            self.entry.append(f"  {self.cancel_pointer} = load ptr, ptr {at}, align {self.target.pointer_bits // 8}")
        flag = self.raw(f"load atomic i32, ptr {self.cancel_pointer} monotonic, align 4")
        ok = self.compare("icmp eq", Val(flag, i32), Val("0", i32))
        self.fail_unless(ok, lambda: self.set_code(CANCELLED))

    def answer(self, code: str) -> None:
        """Emit a test of the error code that a callee returned: return it to the caller unless it is 0."""
        self.fail_unless(self.compare("icmp eq", Val(code, i32), Val("0", i32)), lambda: code)
