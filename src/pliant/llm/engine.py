"""The inference engine: a compiled model with its paged KV cache, fed with batches of token sequences, returns logits.

    engine = Engine(open_gguf("model.gguf"))
    s = engine.cache.open(ids)
    row = engine.feed(s, ids[s.length :])        # logits after the last token
    engine.step([Part(a, [5]), Part(b, [7, 8])]) # one row for each sequence, all in one run

Long inputs are fed in chunks (chunked prefill). Logits depend neither on how the input is cut, nor on the other sequences of a batch.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence as Row

import numpy as np
from numpy.typing import NDArray

from ..frontends.gguf import GgufFile
from ..support.errors import Error, ModelFileError
from ..support.record import dataclass
from .compiled_model import CompiledModel
from .kv_cache import PAGE, STEP_PAGES, STEP_SEQUENCES, STEP_TOKENS, PageCache, Sequence

CHUNK = 512  # prompt tokens per step: many rows for each reading of the weights, few enough to be interruptible
SEQUENCES = 4  # full contexts that the KV cache holds, if memory allows
KINDS = {"f16": np.float16, "f32": np.float32}  # dtypes of the KV cache


@dataclass(slots=True)
class Part:
    """A record of one sequence in a step: the tokens to feed, and whether to return logits after every token or only the last."""

    sequence: Sequence
    tokens: Row[int]
    every: bool = False


class Engine:
    """Runs a decoder on sequences of tokens; keys and values are in a paged KV cache."""

    def __init__(self, file: GgufFile, *, threads: int | None = None, cache: str = "f16", context: int | None = None) -> None:
        if cache not in KINDS:
            raise Error(f"`cache` is {cache!r}; keys and values are kept as {' or '.join(KINDS)}")
        model = CompiledModel(file, cache)
        s = model.config
        self.vocab_size: int = s.vocab_size
        token = 2 * s.layers * s.kv_heads * s.head_dim * np.dtype(KINDS[cache]).itemsize
        room = (_memory() - sum(t.size for t in file.tensors.values())) // 2 // token
        self.context = _context(s.context, context, room)
        self.trained_context: int = s.context
        self.run = model.run(threads)
        one = -(-self.context // PAGE)
        self.cache = PageCache(max(one, min(SEQUENCES * one, room // PAGE)), s.layers, s.kv_heads, s.head_dim, KINDS[cache])

    def feed(self, sequence: Sequence, tokens: Row[int], chunk: int = CHUNK) -> NDArray[np.float32]:
        """Appends tokens to a sequence, `chunk` of them per step; returns the logits after the last one. Raises as `step` does."""
        logits = [self.step([Part(sequence, piece)]) for piece in _pieces(tokens, chunk)]
        row: NDArray[np.float32] = logits[-1][-1]
        return row

    def feed_all(self, sequence: Sequence, tokens: Row[int], chunk: int = CHUNK) -> NDArray[np.float32]:
        """Appends tokens to a sequence, `chunk` of them per step; returns the logits after each of them. Raises as `step` does."""
        return np.concatenate([self.step([Part(sequence, piece, every=True)]) for piece in _pieces(tokens, chunk)])

    def step(self, parts: Row[Part]) -> NDArray[np.float32]:
        """Runs the model once for all parts, each of a different sequence; returns the wanted rows of logits, in order.

        Appends the tokens to their sequences. Raises an Error, with nothing changed, for wrong tokens, a full context or a full cache.
        """
        parts = [Part(p.sequence, _whole(p.tokens), p.every) for p in parts]
        with self.cache.lock:
            _check_step(parts)
            for part in parts:  # check all before any page is allocated
                self._check(part)
            for part in parts:
                self.cache.reserve(part.sequence, part.sequence.length + len(part.tokens))
            logits = self.run(
                *_inputs(parts), self.cache.table([p.sequence for p in parts]), _rows(parts), self.cache.keys, self.cache.values
            )[0]
            for part in parts:  # only after the run: an interrupted run must not add tokens
                part.sequence.tokens += part.tokens
        result: NDArray[np.float32] = logits
        return result

    def _check(self, part: Part) -> None:
        """Raises if a part has no tokens, a closed sequence, too many tokens, or tokens outside of the vocabulary."""
        length = part.sequence.length + len(part.tokens)
        if not part.tokens:
            raise Error("a step needs at least one token of each sequence")
        self.cache.check_open(part.sequence)
        if length > self.context:
            raise too_long(length, self.context, self.trained_context)
        if wrong := [t for t in part.tokens if not 0 <= t < self.vocab_size]:
            raise Error(f"there is no token {wrong[0]}: the vocabulary has {self.vocab_size}")


def _pieces(tokens: Row[int], chunk: int) -> list[Row[int]]:
    """Returns the tokens cut into chunks; raises an Error if there are none, or if a chunk has more than STEP_TOKENS."""
    if not len(tokens):
        raise Error("a step needs at least one token of each sequence")
    if not 1 <= chunk <= STEP_TOKENS:
        raise Error(f"`chunk` is {chunk}; a step takes 1 to {STEP_TOKENS} tokens")
    return [tokens[at : at + chunk] for at in range(0, len(tokens), chunk)]


def _whole(tokens: Row[int]) -> list[int]:
    """Returns the tokens as Python integers; accepts numpy integers, raises for anything else."""
    try:
        return [operator.index(t) for t in tokens]
    except TypeError:
        wrong = next((t for t in tokens if not hasattr(t, "__index__")), tokens)
        raise Error(f"tokens are whole numbers, and {wrong!r} is none") from None


def _check_step(parts: Row[Part]) -> None:
    """Raises an Error if a step has no sequence, too many sequences or tokens, or one sequence twice."""
    if not parts:
        raise Error("a step needs at least one sequence")
    if len(parts) > STEP_SEQUENCES:
        raise Error(f"a step takes {STEP_SEQUENCES} sequences, and there are {len(parts)}", help="make several steps of them")
    if (count := sum(len(p.tokens) for p in parts)) > STEP_TOKENS:
        raise Error(f"a step takes {STEP_TOKENS} tokens of all sequences, and there are {count}", help="feed them in chunks")
    if len({id(p.sequence) for p in parts}) < len(parts):
        raise Error(
            "a step has one sequence twice: the second part would not see the tokens of the first",
            help="join their tokens in one part, or make two steps",
        )


def too_long(length: int, context: int, trained: int) -> Error:
    """Returns the error for a text that does not fit into the context."""
    help = (
        f"the model was made for {trained}: ask for a larger context"
        if context < trained
        else "make it shorter, or use a model with a larger context"
    )
    return Error(f"the text has {length} tokens, and the context holds {context}", help=help)


def _inputs(parts: Row[Part]) -> tuple[NDArray[np.int32], ...]:
    """Returns the ragged batch: tokens, positions, the offsets of the sequences, and their lengths after the step."""
    tokens = np.concatenate([np.asarray(p.tokens, np.int32) for p in parts])
    positions = np.concatenate([np.arange(p.sequence.length, p.sequence.length + len(p.tokens), dtype=np.int32) for p in parts])
    start = np.cumsum([0, *(len(p.tokens) for p in parts)], dtype=np.int32)
    length = np.array([p.sequence.length + len(p.tokens) for p in parts], np.int32)
    return tokens, positions, start, length


def _rows(parts: Row[Part]) -> NDArray[np.int32]:
    """Returns the indices of those tokens of a step whose logits are wanted."""
    rows: list[int] = []
    end = 0
    for part in parts:
        end += len(part.tokens)
        rows += range(end - len(part.tokens), end) if part.every else [end - 1]
    return np.array(rows, np.int32)


def _context(trained: int, wanted: int | None, room: int) -> int:
    """Returns the context length in tokens: the wanted one, else the smaller of the model's trained context and the `room` in memory.

    Raises an Error if the wanted one is not supported, ModelFileError if there is no room.
    """
    if wanted is not None:
        if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= trained:
            raise Error(f"`context` is {wanted!r}; the model was made for 1 to {trained} tokens")
        if wanted > STEP_PAGES * PAGE:
            raise Error(f"`context` is {wanted}; at most {STEP_PAGES * PAGE} tokens are supported")
        return wanted
    if room < PAGE:
        raise ModelFileError("the model is too large for the memory of this machine")
    return min(trained, room // PAGE * PAGE, STEP_PAGES * PAGE)


def _memory() -> int:
    """Returns the bytes of physical memory; 1 TiB if the system does not tell, so that it does not limit anything."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 40
