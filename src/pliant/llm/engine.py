"""A compiled model with its cache: feeds tokens of sequences, gives logits.

    engine = Engine(open_gguf("model.gguf"))
    s = engine.cache.open(ids)
    row = engine.feed(s, ids[s.length :])        # logits after the last token
    engine.step([Part(a, [5]), Part(b, [7, 8])]) # one row for each sequence, all in one run

Long inputs are fed in chunks; what comes out does not depend on how they are cut, nor on who else is in a step.
"""

from __future__ import annotations

import os
from collections.abc import Sequence as Row

import numpy as np
from numpy.typing import NDArray

from ..frontends.gguf import GgufFile
from ..support.errors import Error, ModelFileError
from ..support.record import dataclass
from .cache import PAGE, PageCache, Sequence
from .ready import Ready

CHUNK = 512  # tokens of a step while a prompt is read
SEQUENCES = 4  # whole contexts that fit into the cache at once, where memory allows
KINDS = {"f16": np.float16, "f32": np.float32}  # of keys and values


@dataclass(slots=True)
class Part:
    """What a step does for one sequence: feeds tokens, and gives the logits after the last, or after every one."""

    sequence: Sequence
    tokens: Row[int]
    every: bool = False


class Engine:
    """Runs a model on sequences."""

    def __init__(self, file: GgufFile, *, threads: int | None = None, cache: str = "f16", context: int | None = None) -> None:
        if cache not in KINDS:
            raise Error(f"`cache` is {cache!r}; keys and values are kept as {' or '.join(KINDS)}")
        model = Ready(file, cache)
        s = model.numbers
        self.words: int = s.words
        token = 2 * s.layers * s.kv_heads * s.size * np.dtype(KINDS[cache]).itemsize
        room = (_memory() - sum(t.size for t in file.tensors.values())) // 2 // token
        self.context = _context(s.context, context, room)
        self.trained_context: int = s.context
        self.run = model.run(threads)
        one = -(-self.context // PAGE)
        self.cache = PageCache(max(one, min(SEQUENCES * one, room // PAGE)), s.layers, s.kv_heads, s.size, KINDS[cache])

    def feed(self, sequence: Sequence, tokens: Row[int], chunk: int = CHUNK) -> NDArray[np.float32]:
        """Appends tokens to a sequence; the logits after the last of them."""
        logits: NDArray[np.float32] = np.empty((0, self.words), np.float32)
        for at in range(0, len(tokens), chunk):
            logits = self.step([Part(sequence, tokens[at : at + chunk])])
        row: NDArray[np.float32] = logits[-1]
        return row

    def feed_all(self, sequence: Sequence, tokens: Row[int], chunk: int = CHUNK) -> NDArray[np.float32]:
        """Appends tokens to a sequence; the logits after each of them."""
        parts = [self.step([Part(sequence, tokens[at : at + chunk], every=True)]) for at in range(0, len(tokens), chunk)]
        return np.concatenate(parts)

    def step(self, parts: Row[Part]) -> NDArray[np.float32]:
        """Runs the model once for all parts; the wanted rows of logits, in their order."""
        with self.cache.lock:
            for part in parts:
                self._check(part)
                self.cache.reserve(part.sequence, part.sequence.length + len(part.tokens))
            logits = self.run(
                *_inputs(parts), self.cache.table([p.sequence for p in parts]), _rows(parts), self.cache.keys, self.cache.values
            )[0]
            for part in parts:  # only now: a run that was interrupted has added nothing
                part.sequence.tokens += part.tokens
        found: NDArray[np.float32] = logits
        return found

    def _check(self, part: Part) -> None:
        length = part.sequence.length + len(part.tokens)
        if not part.tokens:
            raise Error("a step needs at least one token of each sequence")
        if length > self.context:
            raise too_long(length, self.context, self.trained_context)
        if wrong := [t for t in part.tokens if not 0 <= t < self.words]:
            raise Error(f"there is no token {wrong[0]}: the vocabulary has {self.words}")


def too_long(length: int, context: int, trained: int) -> Error:
    """A text that does not fit into the context."""
    help = (
        f"the model was made for {trained}: ask for a larger context"
        if context < trained
        else "make it shorter, or use a model with a larger context"
    )
    return Error(f"the text has {length} tokens, and the context holds {context}", help=help)


def _inputs(parts: Row[Part]) -> tuple[NDArray[np.int32], ...]:
    """Tokens, positions, where sequences start in them, and how long each will be."""
    tokens = np.concatenate([np.asarray(p.tokens, np.int32) for p in parts])
    positions = np.concatenate([np.arange(p.sequence.length, p.sequence.length + len(p.tokens), dtype=np.int32) for p in parts])
    start = np.cumsum([0, *(len(p.tokens) for p in parts)], dtype=np.int32)
    length = np.array([p.sequence.length + len(p.tokens) for p in parts], np.int32)
    return tokens, positions, start, length


def _rows(parts: Row[Part]) -> NDArray[np.int32]:
    """Which tokens of a step give logits."""
    found: list[int] = []
    end = 0
    for part in parts:
        end += len(part.tokens)
        found += range(end - len(part.tokens), end) if part.every else [end - 1]
    return np.array(found, np.int32)


def _context(trained: int, wanted: int | None, room: int) -> int:
    """How many tokens a sequence may have: what was asked for, else what the model was made for, or the `room` that memory has."""
    if wanted is not None:
        if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= trained:
            raise Error(f"`context` is {wanted!r}; the model was made for 1 to {trained} tokens")
        return wanted
    if room < PAGE:
        raise ModelFileError("the model is too large for the memory of this machine")
    return min(trained, room // PAGE * PAGE)


def _memory() -> int:
    """Bytes of memory of the machine; very many where nobody says."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 40
