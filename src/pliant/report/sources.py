"""The lines of the user's source that kernels come from; models that were read from files have none, only names of nodes.

for source in sources_of(x):
    source.place, source.text, source.kernels       # "model.py:41", "return self.down(x)", [Func, ...]
"""

from __future__ import annotations

from collections.abc import Sequence

from ..loop.stmt import Func
from ..lower.callee import func_of
from ..support.record import dataclass
from ..support.source import Span
from .bounds import MOST_ROWS
from .facts import Facts
from .launches import Step


@dataclass(frozen=True, slots=True)
class Source:
    """A line of source: file and line, its text, and the kernels that compute it, each once."""

    place: str
    text: str
    kernels: Sequence[Func]


def sources_of(x: Facts) -> list[Source]:
    """Returns the lines of source that the launches come from, in the order of first use; at most MOST_ROWS."""
    found: dict[tuple[str, int], tuple[str, dict[Func, None]]] = {}
    for step in x.steps:
        for span in _spans(step):
            _, kernels = found.setdefault((span.file, span.line), (span.text.strip(), {}))
            kernels[step.func] = None
    return [Source(f"{file}:{line}", text, list(kernels)) for (file, line), (text, kernels) in found.items()][:MOST_ROWS]


def _spans(step: Step) -> list[Span]:
    """Returns where a launch comes from: the line of the call, and that of the user's kernel if it calls one."""
    call = step.logical or step.node
    if call is None:
        return []
    return [span for span in (call.span, func_of(call.callee).span) if span is not None]
