"""Greedy merging of adjacent parts by lowest cost, the core of BPE and SentencePiece.

    merge(["a", "b", "c"], lambda a, b: ranks.get((a, b)))        # -> ["ab", "c"]

The pair with the lowest cost merges first; ties go to the leftmost. A heap makes this O(n log n), so that a hostile text without spaces
costs no more than any other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable


def merge(parts: list[str], cost: Callable[[str, str], float | None]) -> list[str]:
    """Returns the parts after all merges of adjacent ones: always the pair of lowest cost first, of equal ones the leftmost.

    `cost` is None for a pair that does not merge.
    """
    size = len(parts)
    parts = [*parts]  # an empty part has been merged into its left neighbor
    after, before = list(range(1, size + 1)), list(range(-1, size - 1))
    heap: list[tuple[float, int, str, str]] = []

    def offer(left: int, right: int) -> None:
        if left >= 0 and right < size:
            price = cost(parts[left], parts[right])
            if price is not None:
                heapq.heappush(heap, (price, left, parts[left], parts[right]))

    for i in range(size - 1):
        offer(i, i + 1)
    while heap:
        _, left, a, b = heapq.heappop(heap)
        right = after[left]
        if parts[left] != a or right >= size or parts[right] != b:
            continue  # a stale heap entry: one of the parts has been merged since
        parts[left], parts[right] = a + b, ""
        after[left] = after[right]
        if after[right] < size:
            before[after[right]] = left
        offer(before[left], left)
        offer(left, after[left])
    return [part for part in parts if part]
