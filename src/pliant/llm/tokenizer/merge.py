"""Neighbors merged in order of preference until none may be merged: what BPE and SentencePiece share.

    merge(["a", "b", "c"], lambda a, b: ranks.get((a, b)))        # -> ["ab", "c"]

Of all pairs the one with the lowest cost goes first, of equal ones the leftmost. A heap keeps this O(n log n), so that a hostile text
without any space costs no more than another.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable


def merge(parts: list[str], cost: Callable[[str, str], float | None]) -> list[str]:
    """The parts after all merges; `cost` is None for a pair that does not merge."""
    size = len(parts)
    parts = [*parts]  # an empty one has been merged into its left neighbor
    after, before = list(range(1, size + 1)), list(range(-1, size - 1))
    heap: list[tuple[float, int, str, str]] = []

    def offer(left: int, right: int) -> None:
        if left >= 0 and right < size:
            found = cost(parts[left], parts[right])
            if found is not None:
                heapq.heappush(heap, (found, left, parts[left], parts[right]))

    for i in range(size - 1):
        offer(i, i + 1)
    while heap:
        _, left, a, b = heapq.heappop(heap)
        right = after[left]
        if parts[left] != a or right >= size or parts[right] != b:
            continue  # one of them has grown since
        parts[left], parts[right] = a + b, ""
        after[left] = after[right]
        if after[right] < size:
            before[after[right]] = left
        offer(before[left], left)
        offer(left, after[left])
    return [part for part in parts if part]
