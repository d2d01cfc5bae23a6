"""Questions about the blocks of a program: which are inside of a statement, which feed which, which make its results.

    child_blocks(func, loop)            # the blocks inside of a loop, or of a block
    producers(func, block)              # the blocks that write what it reads
    consumers(func, block)              # the blocks that read what it writes
    output_blocks(func)                 # the blocks that write parameters

All answers are in the order of the program. Producers and consumers are looked for among the blocks beside a block: those of the block
around it, or of the program. A block that only writes over what another one has written is neither: no value goes from one to the other.
"""

from __future__ import annotations

from ..loop.analysis.nests import accesses, block_around, blocks
from ..loop.buffer import Buffer
from ..loop.stmt import Block, For, Func, Stmt, children


def child_blocks(func: Func, at: For | Block | None = None) -> list[Block]:
    """The outermost blocks inside of a loop or a block; of the whole program where none is named."""
    if isinstance(at, Block):
        return [b for s in children(at) for b in blocks(s)]
    return blocks(func.body if at is None else at)


def producers(func: Func, block: Block) -> list[Block]:
    """The blocks before a block that write what it reads."""
    read = _read(block)
    beside = _beside(func, block)
    return [b for b in beside[: beside.index(block)] if not read.isdisjoint(_written(b))]


def consumers(func: Func, block: Block) -> list[Block]:
    """The blocks after a block that read what it writes."""
    written = _written(block)
    beside = _beside(func, block)
    return [b for b in beside[beside.index(block) + 1 :] if not written.isdisjoint(_read(b))]


def output_blocks(func: Func) -> list[Block]:
    """The blocks that write parameters of the program."""
    results = {b for b in func.buffers if func.role(b) != "in"}
    return [b for b in blocks(func.body) if not results.isdisjoint(_written(b))]


def _beside(func: Func, block: Block) -> list[Block]:
    around = block_around(func, block)
    inside: tuple[Stmt, ...] = (func.body,) if around is None else tuple(children(around))
    return [b for s in inside for b in blocks(s)]


def _written(block: Block) -> set[Buffer]:
    return {a.buffer for a in accesses(block) if a.write}


def _read(block: Block) -> set[Buffer]:
    """What a block reads; a reduction that begins anew, with its init, does not read what was in its target before."""
    own = set() if block.init is None else {a.buffer for a in accesses(block.with_(body=block.init, init=None)) if a.write}
    return {a.buffer for a in accesses(block) if not a.write and (a.buffer not in own)}
