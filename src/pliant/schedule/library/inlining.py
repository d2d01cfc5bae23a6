"""The default rules that compute elementwise producers where they are read, so that they are nowhere in memory as a whole.

    t[i] = x[i] * 2; y[i] = t[i] + 1        ->        y[i] = x[i] * 2 + 1

Whether that is done is a decision. By default it is for those of which each element is read once or costs next to nothing. What decodes the
right-hand side of a product is computed in the product where that reads it in place, and in the copies of panels where it copies them: then
only after these have been made.
"""

from __future__ import annotations

from functools import partial

from ...loop.analysis.nests import allocation, blocks, readers
from ...loop.stmt import Block, Func
from ...support.errors import ScheduleError
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...target import Target
from ..decisions import Decide, DecisionError
from ..plain_nest import elementwise
from ..schedule import Schedule
from .dot_products import dot_product_of
from .match import decodes, is_cheap, reads_once, untouched
from .record import NotChosen, Rule, tried


@dataclass(frozen=True, slots=True)
class Producer:
    """Whether a block is better computed where it is read, and why."""

    better: bool
    why: str


def inlinable(func: Func, block: Block, target: Target) -> Producer | Refusal:
    """An elementwise block that may be computed where it is read, and whether that is better."""
    store = elementwise(block)
    if store is None or allocation(func, store.buffer) is None or decodes(func, block):
        return Refusal(f"block `{block.name}` is no elementwise producer")
    users = readers(func, store.buffer)
    free = untouched(func)
    if any(u not in free for u in users):
        return Refusal(f"a rule has seen to it that `{store.buffer.name}` stays apart")
    if any(not isinstance(dot_product_of(func, u, target), Refusal) for u in users):
        return Refusal(f"instructions read `{store.buffer.name}` from memory")
    if is_cheap(store.value):
        return Producer(True, "it costs about as much as a load")
    once = len(users) == 1 and reads_once(users[0], store)
    return Producer(once, "each element is read once" if once else "elements are read several times, and are not cheap")


def decoding(func: Func, block: Block, target: Target) -> Block | Refusal:
    """A block that decodes the right-hand side of a product."""
    return block if decodes(func, block) else Refusal(f"block `{block.name}` decodes no factor of a product")


def _inline(s: Schedule, roles: Producer, decide: Decide) -> str:
    """Compute a block where it is read, if that is legal and decided."""
    # A sum of what was a product in memory rounds once for each term, not twice; a mean that is part of another block rounds elsewhere.
    sums = any(i.kind == "R" for b in blocks(s.program.body) for i in b.iters)
    try:
        with s.attempt():
            s.compute_inline(decide.block)
            if not decide("inline", (False, True), roles.better, reorders=sums, why=roles.why):
                raise NotChosen
    except DecisionError:
        raise
    except ScheduleError:
        return ""
    return f"inlined `{decide.block}`"


def _decode(s: Schedule, roles: object, decide: Decide) -> str:
    """Compute what decodes the right-hand side of a product where it is read; in copies later."""
    if decide.copying:
        decide.left.add(decide.block)
        return ""
    return f"decoded `{decide.block}` where it is read" if tried(partial(s.compute_inline, decide.block)) else ""


def _decode_into_copies(s: Schedule, roles: object, decide: Decide) -> str:
    if decide.block not in decide.left or not tried(partial(s.compute_inline, decide.block)):
        return ""
    return f"decoded `{decide.block}` where it is read"


INLINING = Rule("inlining", "inlining", inlinable, _inline, early=True)
DECODING = Rule("decoding", "decoding", decoding, _decode, early=True)
DECODING_INTO_COPIES = Rule(
    "decoding into copies", "decoding into copies", lambda func, block, target: block, _decode_into_copies, early=True
)
