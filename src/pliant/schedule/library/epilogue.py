"""Epilogues: elementwise blocks after a product, a convolution or a window are computed in its write-back.

join_elementwise(s, block)                       # y = sum + bias; z = y * clip(y + 3): one block instead of a chain
text = with_epilogue(s, block, rule.apply)       # schedules the block, then fuses what follows into the write-back
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...loop.analysis.block_kind import elementwise, reads_once
from ...loop.analysis.nests import allocation, blocks, readers
from ...loop.stmt import Block
from ..schedule import Schedule
from .record import tried


def join_elementwise(s: Schedule, block: Block) -> None:
    """Inline every elementwise block after `block` that a single elementwise block reads, each element once, into its reader.

    A chain whose last block reads the first one too, as `y * clip(y + 3)` does, becomes one block. Only such a block can move into the
    write-back: in a chain, each block but the last would be the second reader of what the first one makes.
    """
    order = blocks(s.program.body)
    for b in order[order.index(block) + 1 :]:
        store = elementwise(b)
        if store is None or allocation(s.program, store.buffer) is None:
            continue
        users = readers(s.program, store.buffer)
        if len(users) == 1 and elementwise(users[0]) is not None and reads_once(users[0], store.buffer):
            tried(partial(s.compute_inline, b.name))


def with_epilogue(s: Schedule, block: Block, apply: Callable[[], str]) -> str:
    """Apply a rule to a product, then fuse the elementwise blocks that follow into its write-back, as far as that is legal."""
    order = blocks(s.program.body)
    later = [b.name for b in order[order.index(block) + 1 :] if elementwise(b) is not None]
    text = apply()
    folded = [e for e in later if tried(partial(s.reverse_compute_inline, e))]
    return text + (f", with {', '.join(f'`{e}`' for e in folded)} in its write-back" if folded else "")
