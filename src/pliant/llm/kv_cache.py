"""The host's side of the paged cache: pages of 64 tokens, which sequence has which, and prefixes that need not be computed again.

    cache = PageCache(pages=128, layers=30, kv_heads=3, size=64, kind=np.float16)
    s = cache.open(ids)              # begins with as many of `ids` as some earlier sequence left in the cache
    cache.reserve(s, len(ids))       # pages for them, before a step writes
    s.tokens += ids[s.length :]      # after the step
    cache.close(s)                   # its pages stay until somebody needs them

All pages are two arrays that never move; the system gives memory when a page is first written, so room that nobody uses costs nothing.
Pages lie in *runs* of a few: a run holds all layers, and in each of them its pages follow each other. So pages in use lie close together,
and memory can come in large pages, with which reading is a tenth faster; one page in each layer apart would cost 2 MiB a layer then.
A sequence that was closed is *idle*: it serves as a prefix for later ones, and goes, least recently used first, when pages are short.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence as Row
from typing import Any

import numpy as np

from ..support.errors import Error, OutOfMemoryError
from ..support.record import dataclass

PAGE = 64
_RUN_BYTES, _MOST_PAGES = 192 << 10, 8  # of keys of one layer in a run, and pages: shorter pieces are slower to read, longer ones waste
MAX_IDLE = 16
STEP_TOKENS, STEP_SEQUENCES, STEP_PAGES = 8192, 256, 4096  # the most of a step: tokens of all sequences, sequences, pages of one


@dataclass(slots=True, eq=False)
class Sequence:
    """The tokens of which keys and values are in the cache, and the pages where they are."""

    tokens: list[int]
    pages: list[int]
    reused: int = 0  # tokens that were there when it was opened
    owner: PageCache | None = None  # the cache whose pages these are; None where it was closed

    @property
    def length(self) -> int:
        """How many tokens are in the cache."""
        return len(self.tokens)


class PageCache:
    """Keys [runs, layers, run, kv_heads, size, 64], values [runs, layers, run, kv_heads, 64, size], and who has which page."""

    def __init__(self, pages: int, layers: int, kv_heads: int, size: int, kind: Any) -> None:
        self.pages, self.run = pages, run_of(kv_heads, size, np.dtype(kind).itemsize)
        shape = (-(-pages // self.run), layers, self.run, kv_heads)
        try:  # numpy asks for large pages
            self.keys = np.empty((*shape, size, PAGE), kind)
            self.values = np.empty((*shape, PAGE, size), kind)
        except (MemoryError, ValueError, OverflowError):
            raise OutOfMemoryError(
                f"a cache of {pages * PAGE} tokens does not fit into memory", help="ask for less: context=4096"
            ) from None
        self.lock = threading.RLock()
        self.free = list(range(pages - 1, -1, -1))  # the last is taken first: pages that were used are used again
        self.idle: list[Sequence] = []  # least recently used first

    @property
    def capacity(self) -> int:
        """Tokens that fit into all pages."""
        return self.pages * PAGE

    def open(self, ids: Row[int]) -> Sequence:
        """A sequence that begins with the longest known prefix of `ids`; never all of them, because the last gives the logits."""
        found = self._opened(ids)
        found.owner = self
        return found

    def _opened(self, ids: Row[int]) -> Sequence:
        with self.lock:
            best = max(self.idle, key=lambda s: common(s.tokens, ids), default=None)
            count = 0 if best is None else min(common(best.tokens, ids), len(ids) - 1)
            if best is None or count <= 0:
                return Sequence([], [])
            if 2 * count < best.length:  # most of it would be lost to whoever comes back to it
                return self._copied(best, count)
            self.idle.remove(best)
            self.shorten(best, count)
            best.reused = count
            return best

    def close(self, sequence: Sequence) -> None:
        """Leaves a sequence to later ones; what is closed already is left alone."""
        with self.lock:
            if sequence.owner is not self:
                return
            sequence.owner = None
            if sequence.length:
                self.idle.append(sequence)
            if not sequence.length or len(self.idle) > MAX_IDLE:
                self.release(self.idle.pop(0) if len(self.idle) > MAX_IDLE else sequence)

    def check_open(self, sequence: Sequence) -> None:
        """Refuses a sequence whose pages are not its own: it was closed, or another cache has them."""
        if sequence.owner is not self:
            why = "was closed" if sequence.owner is None else "is of another model's cache"
            raise Error(f"the sequence {why}", help="open one with engine.cache.open(tokens)")

    def reserve(self, sequence: Sequence, length: int) -> None:
        """Gives a sequence the pages for `length` tokens; idle sequences go where pages are short."""
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
        """Forgets the tokens after the first `length`, and gives back pages that are not needed for these."""
        if length < 0:
            raise Error(f"a sequence cannot have {length} tokens")
        with self.lock:
            del sequence.tokens[length:]
            keep = -(-len(sequence.tokens) // PAGE)
            self.free += reversed(sequence.pages[keep:])
            del sequence.pages[keep:]

    def release(self, sequence: Sequence) -> None:
        """Forgets a sequence."""
        self.shorten(sequence, 0)

    def table(self, sequences: Row[Sequence]) -> np.ndarray[Any, Any]:
        """The page table of a step: i32[sequences, pages of the longest], 0 where a sequence has no page."""
        width = max(len(s.pages) for s in sequences)
        found = np.zeros((len(sequences), width), np.int32)
        for row, s in zip(found, sequences, strict=True):
            row[: len(s.pages)] = s.pages
        return found

    def _copied(self, source: Sequence, count: int) -> Sequence:
        """A sequence of its own with the first tokens of another; none of them where pages are short."""
        needed = -(-count // PAGE)
        if needed > len(self.free):
            return Sequence([], [])
        made = Sequence(source.tokens[:count], [self.free.pop() for _ in range(needed)], count)
        for old, new in zip(source.pages, made.pages, strict=False):
            for cached in (self.keys, self.values):
                cached[new // self.run, :, new % self.run] = cached[old // self.run, :, old % self.run]
        return made


def run_of(kv_heads: int, size: int, itemsize: int) -> int:
    """How many pages a run has, for so many heads of keys of so many elements."""
    return max(1, min(_MOST_PAGES, _RUN_BYTES // (kv_heads * size * itemsize * PAGE)))


def common(a: Row[int], b: Row[int]) -> int:
    """How many tokens two rows have in common at their beginning."""
    size = min(len(a), len(b))
    return next((i for i in range(size) if a[i] != b[i]), size)
