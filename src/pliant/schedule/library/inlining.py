"""The default rules that compute elementwise producers where they are read, so that they are nowhere in memory as a whole.

    t[i] = x[i] * 2; y[i] = t[i] + 1        ->        y[i] = x[i] * 2 + 1

First those of which each element is read once or costs next to nothing. What decodes the right-hand side of a product is computed in the
product where that reads it in place, and in the copies of panels where it copies them: then only after these have been made.
"""

from __future__ import annotations

from functools import partial

from ...loop.stmt import Block, Func, Store
from ...support.refusal import Refusal
from ...target import Target
from ..decisions import Decide
from ..nest import allocation, readers
from ..plain_nest import elementwise
from ..schedule import Schedule
from .dot_products import dot_product_of
from .match import decodes, is_cheap, reads_once, untouched
from .record import Rule, tried


def inlinable(func: Func, block: Block, target: Target) -> Store | Refusal:
    """The store of an elementwise block that is better computed where it is read."""
    store = elementwise(block)
    if store is None or allocation(func, store.buffer) is None or decodes(func, block):
        return Refusal(f"block `{block.name}` is no elementwise producer")
    users = readers(func, store.buffer)
    free = untouched(func)
    if any(u not in free for u in users):
        return Refusal(f"a rule has seen to it that `{store.buffer.name}` stays apart")
    if any(not isinstance(dot_product_of(func, u, target), Refusal) for u in users):
        return Refusal(f"instructions read `{store.buffer.name}` from memory")
    if is_cheap(store.value) or (len(users) == 1 and reads_once(users[0], store)):
        return store
    return Refusal(f"elements of `{store.buffer.name}` are read several times, and are not cheap")


def decoding(func: Func, block: Block, target: Target) -> Block | Refusal:
    """A block that decodes the right-hand side of a product."""
    return block if decodes(func, block) else Refusal(f"block `{block.name}` decodes no factor of a product")


def _inline(s: Schedule, roles: object, decide: Decide) -> str:
    return f"inlined `{decide.block}`" if tried(partial(s.compute_inline, decide.block)) else ""


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
