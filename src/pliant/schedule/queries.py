"""Dataflow queries over blocks: which blocks are inside a statement, which produce and consume values, which write the outputs.

    child_blocks(func, loop)            # the blocks inside a loop, or inside a block
    producers(func, block)              # the blocks that write what it reads
    consumers(func, block)              # the blocks that read what it writes
    output_blocks(func)                 # the blocks that write parameters

All answers are in program order. Producers and consumers are siblings of the block: they are in the same enclosing block, or in the
program. A block that only overwrites another block's result is neither producer nor consumer, because no value flows between them.
"""

from __future__ import annotations

from ..loop.analysis.nests import accesses, block_around, blocks
from ..loop.buffer import Buffer
from ..loop.stmt import Block, For, Func, Stmt, children


def child_blocks(func: Func, at: For | Block | None = None) -> list[Block]:
    """Return the outermost blocks inside a loop or a block, or of the whole program if `at` is None."""
    if isinstance(at, Block):
        return [b for s in children(at) for b in blocks(s)]
    return blocks(func.body if at is None else at)


def producers(func: Func, block: Block) -> list[Block]:
    """Return the blocks before `block`, inside the same block or else anywhere in the program, that write a buffer it reads.

    They are in program order. A reduction with an init does not read its target.
    """
    read = _read(block)
    beside = _beside(func, block)
    return [b for b in beside[: beside.index(block)] if not read.isdisjoint(_written(b))]


def consumers(func: Func, block: Block) -> list[Block]:
    """Return the blocks after `block`, inside the same block or else anywhere in the program, that read a buffer it writes.

    They are in program order.
    """
    written = _written(block)
    beside = _beside(func, block)
    return [b for b in beside[beside.index(block) + 1 :] if not written.isdisjoint(_read(b))]


def output_blocks(func: Func) -> list[Block]:
    """Return the blocks that write parameters of the program."""
    results = {b for b in func.buffers if func.role(b) != "in"}
    return [b for b in blocks(func.body) if not results.isdisjoint(_written(b))]


def _beside(func: Func, block: Block) -> list[Block]:
    around = block_around(func, block)
    inside: tuple[Stmt, ...] = (func.body,) if around is None else tuple(children(around))
    return [b for s in inside for b in blocks(s)]


def _written(block: Block) -> set[Buffer]:
    return {a.buffer for a in accesses(block) if a.write}


def _read(block: Block) -> set[Buffer]:
    """Return the buffers that a block reads; a reduction with an init does not read the previous contents of its target."""
    own = set() if block.init is None else {a.buffer for a in accesses(block.with_(body=block.init, init=None)) if a.write}
    return {a.buffer for a in accesses(block) if not a.write and (a.buffer not in own)}
