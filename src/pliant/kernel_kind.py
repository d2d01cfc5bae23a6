"""`pliant.kind(kernel)`: the pattern by which fusion sees a kernel, and why.

>>> pliant.kind(row_sums)
reduction: `y[vi]` combines values along `vk`

What each pattern may fuse with is in docs/loop_language.md. The pattern comes from the loops alone, not from names.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from .loop.analysis.kind_reason import kind_reason
from .loop.analysis.nest_kind import pattern_kind
from .loop.passes.infer_blocks import infer_blocks
from .loop.stmt import Func
from .support.errors import Error
from .support.record import dataclass
from .support.source import caller_span

KindName = Literal["elementwise", "broadcast", "injective", "gather", "scatter", "reduction", "matmul", "opaque"]


@dataclass(frozen=True, slots=True)
class KernelKind:
    """How fusion sees a kernel: the name of its pattern, the reason, and the parameters that it updates in place."""

    name: KindName
    reason: str
    updates: tuple[str, ...] = ()

    def __repr__(self) -> str:
        order = f"; it updates {', '.join(f'`{u}`' for u in self.updates)}, so its place in the order is kept" if self.updates else ""
        return f"{self.name}: {self.reason}{order}"


def kind(kernel: Any) -> KernelKind:
    """Returns the pattern by which fusion sees a kernel, with the reason; raises an Error for what is no kernel.

    The patterns: elementwise, broadcast, injective, gather, scatter, reduction, matmul, opaque.
    """
    func = kernel if isinstance(kernel, Func) else getattr(kernel, "func", None)
    if not isinstance(func, Func):
        help_ = "pliant.explain shows the kernels of a compiled program" if hasattr(kernel, "graph") else "give what @kernel made"
        raise Error(f"kind is for kernels, not for an object of type `{type(kernel).__name__}`", where=caller_span(), help=help_)
    updates = tuple(p.value.name for p in func.params if p.role == "inout")
    if func.attrs.scheduled:
        return KernelKind("opaque", "it has a schedule of its own, and runs as it stands", updates)
    inferred = infer_blocks(func)
    name = cast(KindName, pattern_kind(inferred).name.lower())
    return KernelKind(name, kind_reason(inferred), updates)
