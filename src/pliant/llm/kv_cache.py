"""The paged KV cache: allocates pages of 64 tokens to sequences, and reuses the prefixes of earlier sequences (prefix caching).

    cache = PageCache(pages=128, layers=30, kv_heads=3, size=64, kind=np.float16)
    s = cache.open(ids)              # starts with the longest prefix of `ids` that an earlier sequence left in the cache
    cache.reserve(s, len(ids))       # allocates pages, before a step writes
    s.tokens += ids[s.length :]      # after the step
    cache.close(s)                   # its pages stay until they are needed

All pages are in two arrays that never move. The system provides memory when a page is first written, so unused capacity costs nothing.
Pages are grouped in *runs* of a few: a run holds all layers, and within a layer its pages are adjacent. So the pages in use are close
together, and the system can back them with huge pages, which makes reading a tenth faster. If each layer had its pages apart, a single
page in use would cost 2 MiB per layer then. A closed sequence is *idle*: later sequences can reuse it as a prefix, and it is evicted, least
recently used first, if pages run out.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence as Row
from typing import Any

import numpy as np

from ..support.errors import Error, OutOfMemoryError
from ..support.record import dataclass

PAGE = 64  # tokens per page: the attention kernel computes the scores of a page as whole vectors in registers
# Upper bounds of a run: bytes of the keys of one layer, and pages. Shorter contiguous pieces are slower to read; longer ones waste memory.
_RUN_BYTES, _MOST_PAGES = 192 << 10, 8
MAX_IDLE = 16  # closed sequences kept as prefixes: `open` compares each of them with the prompt
# Upper bounds of a step: tokens of all sequences, sequences, pages of one sequence. They bound the dims of the compiled program.
STEP_TOKENS, STEP_SEQUENCES, STEP_PAGES = 8192, 256, 4096


@dataclass(slots=True, eq=False)
class Sequence:
    """A sequence in the KV cache: the tokens whose keys and values are cached, and the pages that hold them."""

    tokens: list[int]
    pages: list[int]
    reused: int = 0  # tokens that were in the cache when it was opened
    owner: PageCache | None = None  # the cache that owns the pages; None if the sequence is closed

    @property
    def length(self) -> int:
        """The number of tokens of this sequence that are in the KV cache."""
        return len(self.tokens)


class PageCache:
    """The paged KV cache: keys [runs, layers, run, kv_heads, size, 64], values [runs, layers, run, kv_heads, 64, size], free pages."""

    def __init__(self, pages: int, layers: int, kv_heads: int, size: int, kind: Any) -> None:
        self.pages, self.run = pages, run_of(kv_heads, size, np.dtype(kind).itemsize)
        shape = (-(-pages // self.run), layers, self.run, kv_heads)
        try:  # numpy asks the system for huge pages
            self.keys = np.empty((*shape, size, PAGE), kind)
            self.values = np.empty((*shape, PAGE, size), kind)
        except (MemoryError, ValueError, OverflowError):
            raise OutOfMemoryError(
                f"a cache of {pages * PAGE} tokens does not fit into memory", help="ask for less: context=4096"
            ) from None
        self.lock = threading.RLock()
        self.free = list(range(pages - 1, -1, -1))  # a stack: pages that already have memory are reused first
        self.idle: list[Sequence] = []  # least recently used first

    @property
    def capacity(self) -> int:
        """The number of tokens that all pages hold."""
        return self.pages * PAGE

    def open(self, ids: Row[int]) -> Sequence:
        """Opens a sequence with the longest cached prefix of `ids`; never all of them, because the last token must run to give logits."""
        sequence = self._opened(ids)
        sequence.owner = self
        return sequence

    def _opened(self, ids: Row[int]) -> Sequence:
        """Takes over, or copies, the idle sequence with the longest common prefix; an empty sequence if there is none."""
        with self.lock:
            best = max(self.idle, key=lambda s: common(s.tokens, ids), default=None)
            count = 0 if best is None else min(common(best.tokens, ids), len(ids) - 1)
            if best is None or count <= 0:
                return Sequence([], [])
            if 2 * count < best.length:  # copy: taking it over would destroy most of a prefix that may be needed again
                return self._copied(best, count)
            self.idle.remove(best)
            self.shorten(best, count)
            best.reused = count
            return best

    def close(self, sequence: Sequence) -> None:
        """Closes a sequence and keeps its pages as a prefix for later ones; does nothing if it is closed already."""
        with self.lock:
            if sequence.owner is not self:
                return
            sequence.owner = None
            if sequence.length:
                self.idle.append(sequence)
            if not sequence.length or len(self.idle) > MAX_IDLE:
                self.release(self.idle.pop(0) if len(self.idle) > MAX_IDLE else sequence)

    def check_open(self, sequence: Sequence) -> None:
        """Raises if the sequence was closed or belongs to another cache."""
        if sequence.owner is not self:
            why = "was closed" if sequence.owner is None else "is of another model's cache"
            raise Error(f"the sequence {why}", help="open one with engine.cache.open(tokens)")

    def reserve(self, sequence: Sequence, length: int) -> None:
        """Allocates pages for `length` tokens of a sequence; evicts idle sequences if needed.

        Raises an Error if that is not enough, or if the sequence is closed.
        """
        self.check_open(sequence)
        with self.lock:
            missing = -(-length // PAGE) - len(sequence.pages)
            while missing > len(self.free) and self.idle:
                self.release(self.idle.pop(0))
            if missing > len(self.free):
                raise Error(
                    f"the cache of {self.capacity} tokens is full: {length} are wanted, and other sequences are running",
                    help="close streams that are not needed, or make the model with a larger context",
                )
            for _ in range(missing):
                sequence.pages.append(self.free.pop())

    def shorten(self, sequence: Sequence, length: int) -> None:
        """Truncates a sequence to `length` tokens and frees the pages that it no longer needs. Raises an Error for a negative length."""
        if length < 0:
            raise Error(f"a sequence cannot have {length} tokens")
        with self.lock:
            del sequence.tokens[length:]
            keep = -(-len(sequence.tokens) // PAGE)
            self.free += reversed(sequence.pages[keep:])
            del sequence.pages[keep:]

    def release(self, sequence: Sequence) -> None:
        """Frees all pages of a sequence."""
        self.shorten(sequence, 0)

    def table(self, sequences: Row[Sequence]) -> np.ndarray[Any, Any]:
        """Returns the page table of a step: i32[sequences, pages of the longest], 0 where a sequence has no page."""
        width = max(len(s.pages) for s in sequences)
        table = np.zeros((len(sequences), width), np.int32)
        for row, s in zip(table, sequences, strict=True):
            row[: len(s.pages)] = s.pages
        return table

    def _copied(self, source: Sequence, count: int) -> Sequence:
        """Returns a new sequence with a copy of the first `count` tokens of another; an empty one if there are not enough free pages."""
        needed = -(-count // PAGE)
        if needed > len(self.free):
            return Sequence([], [])
        copy = Sequence(source.tokens[:count], [self.free.pop() for _ in range(needed)], count)
        for old, new in zip(source.pages, copy.pages, strict=False):
            for cached in (self.keys, self.values):
                cached[new // self.run, :, new % self.run] = cached[old // self.run, :, old % self.run]
        return copy


def run_of(kv_heads: int, size: int, itemsize: int) -> int:
    """Returns how many pages fit in `_RUN_BYTES`, 1 to `_MOST_PAGES`; a page is PAGE tokens of `kv_heads * size * itemsize` bytes."""
    return max(1, min(_MOST_PAGES, _RUN_BYTES // (kv_heads * size * itemsize * PAGE)))


def common(a: Row[int], b: Row[int]) -> int:
    """Returns the length of the common prefix of two token rows."""
    size = min(len(a), len(b))
    return next((i for i in range(size) if a[i] != b[i]), size)
