"""Scopes of the verifier of loop programs: which names a statement may use, and the checks of expressions and buffers against them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ..dtype import DType, i64
from ..support.errors import Error, InternalError, counted
from ..sym.expr import TRUE, Expr, Var, free_vars
from ..sym.walk import walk
from .buffer import Buffer, Load
from .stmt import Block, For, Func, Stmt


class OpenBlock(NamedTuple):
    """A record of a block around the current statement, and of the loops between it and the next block outside."""

    block: Block
    loops: tuple[For, ...]


class ScopeVerifier:
    """Tracks the names in scope during verification; a name is `fixed` if nested blocks may use it."""

    def __init__(self, func: Func, given: Expr = TRUE) -> None:
        self.func = func
        self.visible: dict[Var | Buffer, bool] = {}  # name -> fixed
        self.hidden: set[Var | Buffer] = set()  # in scope, but not inside of the innermost block
        self.readonly: set[Buffer] = set()
        self.loops: dict[Var, For] = {}  # the loops inside of the innermost block
        self.blocks: list[OpenBlock] = []
        self.path: list[str] = []
        self.stmt_now: Stmt | None = None
        self.repeated = 0
        self.threads: tuple[For, ...] = ()  # the surrounding parallel loops
        self.registers: dict[Buffer, tuple[For, ...]] = {}  # register buffer -> the parallel loops around its allocation
        self.guard = given  # the conjunction of the checks before this statement

    def fail(self, what: str, facts: Sequence[str] = (), help: str = "") -> Error:
        """Returns the error about the current statement; an InternalError if it has no place in the user's source."""
        span = self.stmt_now.span if self.stmt_now is not None else self.func.span
        if span is not None:
            return Error(what, where=span, facts=facts, help=help)
        return InternalError(f"{what}, in `{self.func.name}` at {'.'.join(self.path) or 'its parameters'}", facts=facts)

    # Scopes.

    @contextmanager
    def scope(self, *, repeated: bool = False) -> Iterator[None]:
        """Context manager: names, and checks, that are defined inside of it go out of scope at its end.

        `repeated` for the body of a loop.
        """
        outside = dict(self.visible), set(self.readonly), self.guard
        self.repeated += repeated
        yield
        self.repeated -= repeated
        self.visible, self.readonly, self.guard = outside

    def define(self, value: Var | Buffer, *, fixed: bool) -> None:
        """Adds a name to the scope, with whether its value is `fixed`; raises if it is already defined."""
        if value in self.visible or value in self.hidden:
            raise self.fail(f"`{value.name}` is defined again inside of its own scope")
        self.visible[value] = fixed

    def unchanging(self, parts: Iterable[Expr]) -> bool:
        """True if the expressions load nothing and use only names that do not depend on the surrounding loops."""
        return all(self.visible.get(v, False) for e in parts for v in free_vars(e)) and not any(
            isinstance(n, Load) for e in parts for n in walk(e)
        )

    # Expressions.

    def expr(self, e: Expr, dtype: DType | None, what: str) -> None:
        """Raises an error unless an expression has the dtype (any if None), and all names in it are in scope."""
        if dtype is not None and e.dtype is not dtype:
            raise self.fail(f"{what} is {e.dtype}, not {dtype}", [f"`{e}`"], f"write cast({dtype}, {e})")
        for v in free_vars(e):
            if v not in self.visible:
                raise self.not_visible(v)
        for node in walk(e):
            if isinstance(node, Load):
                self.use(node.buffer)
                self.indices(node.buffer, node.indices)

    def not_visible(self, value: Var | Buffer) -> Error:
        """Returns the error for a name that is not in scope here."""
        if value in self.hidden:
            help_ = "a block uses its iterators, the parameters, and what is defined outside of all loops: bind it to an iterator"
            return self.fail(f"`{value.name}` cannot be used in this block", help=help_)
        return self.fail(f"`{value.name}` is used where it is not defined")

    def use(self, buffer: Buffer) -> None:
        """Raises an error unless a buffer is in scope, and a register buffer is used by the thread that allocated it."""
        if buffer not in self.visible:
            raise self.not_visible(buffer)
        if self.registers.get(buffer, self.threads) != self.threads:
            raise self.fail(
                f"register buffer `{buffer.name}` is used in parallel loop `{self.threads[-1].var.name}`, and allocated outside of it",
                help="threads share memory and no registers: allocate it on the stack, or inside of the loop",
            )

    def indices(self, buffer: Buffer, indices: tuple[Expr, ...], dtype: str = "an index") -> None:
        """Raises an error unless there is one i64 index for each dimension."""
        if len(indices) != buffer.ndim:
            raise self.fail(f"`{buffer.name}` has {buffer.ndim} dimensions, {len(indices)} indices given", [f"`{buffer}`"])
        for i in indices:
            if i.dtype is not i64:
                raise self.fail(f"{dtype} of `{buffer.name}` is {i.dtype}, not i64", [f"`{i}`"])

    def buffer(self, b: Buffer) -> None:
        """Raises an error unless a buffer's extents and strides are i64, with one stride for each dimension if there are any."""
        if b.strides is not None and len(b.strides) != len(b.shape):
            raise self.fail(f"`{b.name}` has {counted(len(b.strides), 'stride')} for {counted(len(b.shape), 'dimension')}")
        for e in (*b.shape, *(b.strides or ())):
            if e.dtype is not i64:
                raise self.fail(f"an extent of `{b.name}` is {e.dtype}, not i64", [f"`{e}`"])
