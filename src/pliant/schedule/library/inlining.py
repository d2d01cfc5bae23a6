"""Default rules for producer inlining: compute elementwise producers at their readers, so that no intermediate tensor is in memory.

    t[i] = x[i] * 2; y[i] = t[i] + 1        ->        y[i] = x[i] * 2 + 1

Each inlining is a decision. By default it happens if each element is read once or is cheap to compute. Blocks that decode (dequantize) the
right-hand side of a product are inlined into the product that reads it in place, or into the copies of panels after these exist.
"""

from __future__ import annotations

from functools import partial

from ...loop.analysis.block_kind import decodes, elementwise, is_cheap, reads_once
from ...loop.analysis.nest_shape import untouched
from ...loop.analysis.nests import allocation, blocks, find_block, readers
from ...loop.stmt import Block, Func
from ...support.choices import worth
from ...support.errors import ScheduleError
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...target import Target
from ..decisions import Decide, DecisionError
from ..schedule import Schedule
from .dot_products import dot_product_of
from .record import NotChosen, Rule, tried


@dataclass(frozen=True, slots=True)
class Producer:
    """A record about a block that others read: whether it is better to compute it where it is read (inline it), and why."""

    better: bool
    why: str


def inlinable(func: Func, block: Block, target: Target) -> Producer | Refusal:
    """Match an elementwise producer that may be inlined; return whether inlining is better, and why.

    Returns a Refusal for decoders of weights, a producer with a reader that is scheduled already, and one that instructions read.
    """
    store = elementwise(block)
    # `block` is as it was before the phase. Since then it may have become the decoder of a product, by the inlining of its own producers.
    if store is None or allocation(func, store.buffer) is None or decodes(func, find_block(func, block.name)):
        return Refusal(f"block `{block.name}` is no elementwise producer")
    users = readers(func, store.buffer)
    free = untouched(func)
    if any(u not in free for u in users):
        return Refusal(f"a rule keeps `{store.buffer.name}` in a buffer of its own")
    if any(not isinstance(dot_product_of(func, u, target), Refusal) for u in users):
        return Refusal(f"instructions read `{store.buffer.name}` from memory")
    if worth(is_cheap(store.value)):
        return Producer(True, "it costs about as much as a load")
    once = worth(len(users) == 1 and reads_once(users[0], store.buffer))
    return Producer(once, "each element is read once" if once else "elements are read several times, and are not cheap")


def decoding(func: Func, block: Block, target: Target) -> Block | Refusal:
    """Match a block that decodes (dequantizes) the right-hand side of a product: return the block, or a Refusal."""
    return block if decodes(func, block) else Refusal(f"block `{block.name}` decodes no factor of a product")


def _inline(s: Schedule, roles: Producer, decide: Decide) -> str:
    """Inline a block into its readers if that is legal and the decision says so; return the text for `explain`.

    Returns "" if inlining is illegal; raises NotChosen if the decision `inline` is False.
    """
    # Inlining may change bits: a sum of an inlined product rounds once per term (FMA) instead of twice, and a mean inlined into another
    # block is rounded at another place.
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
    """Inline a decoding block into the product that reads it; return the text for `explain`, "" if nothing was done.

    A copying version only notes the block in `decide.left`, and inlines it later into the copies of panels.
    """
    if decide.copying:
        decide.left.add(decide.block)
        return ""
    return f"decoded `{decide.block}` where it is read" if tried(partial(s.compute_inline, decide.block)) else ""


def _decode_into_copies(s: Schedule, roles: object, decide: Decide) -> str:
    """Inline a block that `_decode` left into the copies of panels that read it; return the text for `explain`, "" if nothing was done."""
    if decide.block not in decide.left or not tried(partial(s.compute_inline, decide.block)):
        return ""
    return f"decoded `{decide.block}` where it is read"


INLINING = Rule("inlining", "inlining", inlinable, _inline, early=True)
DECODING = Rule("decoding", "decoding", decoding, _decode, early=True)
DECODING_INTO_COPIES = Rule(
    "decoding into copies", "decoding into copies", lambda func, block, target: block, _decode_into_copies, early=True
)
