"""Reads and checks the attributes of TfIdfVectorizer: the pool of n-grams to count."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from ...support.record import dataclass

Array = np.ndarray[Any, Any]
_FLOATS, _INT, _STRING, _INTS, _STRINGS = 6, 2, 3, 7, 8  # values of AttributeProto.AttributeType
MOST_WIDTH = 1 << 26  # the most columns of the result: one large index of a hostile file would allocate any amount of memory


@dataclass(frozen=True, slots=True)
class Pool:
    """The parameters of an n-gram counter: n-grams, their result indices and weights, lengths to count, largest skip, mode, width."""

    grams: list[tuple[Any, ...]]
    indexes: list[int]
    weights: Array | None
    least: int
    most: int
    skips: int
    mode: str
    width: int

    def factors(self) -> Array:
        """Returns the weight of every result element; 1 without weights."""
        weights = np.ones(self.width, np.float32)
        if self.weights is not None:
            weights[self.indexes] = self.weights
        return weights

    def weighed(self, counts: Array) -> Array:
        """Returns the counts weighted by the mode TF, IDF or TFIDF."""
        if self.mode == "TF":
            return counts.astype(np.float32)
        return (np.minimum(counts, 1) if self.mode == "IDF" else counts).astype(np.float32) * self.factors()


def pool_of(wrong: Callable[[str], Exception], attribute: Callable[[str, int, Any], Any], kind: str) -> Pool:
    """Reads the pool of a node; `kind` is the attribute with its elements. Raises `wrong(…)` for invalid attributes."""
    pool = attribute(kind, _STRINGS if kind == "pool_strings" else _INTS, None)
    if pool is None:
        raise wrong(f'attribute "{kind}" is missing: the pool must be of the type of the operand')
    counts, indexes = attribute("ngram_counts", _INTS, []), attribute("ngram_indexes", _INTS, [])
    least, most, skips = (attribute(n, _INT, 0) for n in ("min_gram_length", "max_gram_length", "max_skip_count"))
    mode, weights = attribute("mode", _STRING, ""), attribute("weights", _FLOATS, None)
    if not 1 <= least <= most or skips < 0 or most > 64 or skips > 1024:
        raise wrong(f"n-grams of {least} to {most} elements, with up to {skips} between two")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise wrong(f'attribute "mode" is "{mode}"')
    ends = [*counts, len(pool)]
    if not counts or counts[0] != 0 or any(a > b for a, b in pairwise(ends)):
        raise wrong(f'attribute "ngram_counts" is {counts}')
    grams: list[tuple[Any, ...]] = []
    for k, (start, stop) in enumerate(pairwise(ends)):
        if (stop - start) % (k + 1):
            raise wrong(f"{stop - start} elements of the pool are for n-grams of {k + 1}")
        grams += [tuple(pool[i : i + k + 1]) for i in range(start, stop, k + 1)]
    if len(indexes) != len(grams) or len(set(indexes)) != len(indexes) or not all(0 <= i < MOST_WIDTH for i in indexes):
        raise wrong(f'attribute "ngram_indexes" does not give each of the {len(grams)} n-grams a place of its own')
    if weights and len(weights) != len(grams):
        raise wrong(f"{len(weights)} weights for {len(grams)} n-grams")
    if weights and mode != "TF" and indexes != list(range(len(indexes))):
        raise wrong("weights of n-grams whose indexes are out of order, which the standard takes by n-gram and onnxruntime by index")
    width = max(indexes, default=-1) + 1
    return Pool(grams, indexes, np.asarray(weights, np.float32) if weights else None, least, most, skips, mode, width)
