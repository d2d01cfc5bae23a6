"""The host's side of the paged cache, without a model: who has which page, prefixes, and what goes when pages are short."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pliant import Error
from pliant.llm.kv_cache import MAX_IDLE, PAGE, PageCache, Sequence, common


def cache(pages: int = 8) -> PageCache:
    return PageCache(pages, layers=2, kv_heads=16, size=16, kind=np.float32)  # in runs of three pages


def grown(c: PageCache, tokens: list[int]) -> Sequence:
    """A sequence of these tokens, each token's keys and values its own number."""
    s = c.open(tokens)
    c.reserve(s, len(tokens))
    for at in range(s.length, len(tokens)):
        page, place = s.pages[at // PAGE], at % PAGE
        c.keys[page // 3, :, page % 3, :, :, place] = tokens[at]
        c.values[page // 3, :, page % 3, :, place, :] = tokens[at]
    s.tokens += tokens[s.length :]
    return s


def stored(c: PageCache, s: Sequence) -> list[int]:
    """The tokens as the pages have them."""
    return [int(c.values[s.pages[at // PAGE] // 3, 1, s.pages[at // PAGE] % 3, 0, at % PAGE, 0]) for at in range(s.length)]


def row(seed: int, count: int) -> list[int]:
    return random.Random(seed).choices(range(1000), k=count)


def test_pages_are_taken_as_they_are_needed() -> None:
    c = cache()
    s = c.open([1])
    for length, pages in ((1, 1), (64, 1), (65, 2), (512, 8)):
        c.reserve(s, length)
        assert len(s.pages) == pages == 8 - len(c.free)
    assert sorted(s.pages) == list(range(8)) and c.capacity == 512
    assert c.keys.shape == (3, 2, 3, 16, 16, 64) and c.values.shape == (3, 2, 3, 16, 64, 16)


def test_a_longer_sequence_is_refused_and_has_nothing_lost() -> None:
    c = cache(2)
    first = grown(c, row(1, 100))
    with pytest.raises(Error, match=r"the cache of 128 tokens is full: 65 are wanted"):
        c.reserve(c.open([5]), 65)
    assert stored(c, first) == row(1, 100)


def test_the_next_one_begins_with_what_is_known() -> None:
    c = cache()
    tokens = row(2, 150)
    first = grown(c, tokens)
    c.close(first)
    again = c.open([*tokens[:140], 7, 8])
    assert again is first and again.tokens == tokens[:140] and again.reused == 140 and len(again.pages) == 3
    assert c.idle == []
    c.close(again)
    assert c.open(tokens[:140]).length == 139  # the last one has to be computed: it gives the logits


def test_a_short_common_beginning_is_copied() -> None:
    c = cache()
    tokens = row(3, 200)
    first = grown(c, tokens)
    c.close(first)
    second = grown(c, [*tokens[:70], 5, 6])
    assert second.reused == 70 and not set(second.pages) & set(first.pages)
    assert stored(c, second) == [*tokens[:70], 5, 6]
    assert c.idle == [first] and stored(c, first) == tokens


def test_what_was_not_used_for_longest_goes_first() -> None:
    c = cache(4)
    rows = [row(seed, 60) for seed in range(4)]
    for tokens in rows:
        c.close(grown(c, tokens))
    c.close(c.open([*rows[0], 1]))  # used again
    new = grown(c, row(9, 100))
    assert [s.tokens for s in c.idle] == [rows[3], rows[0]]
    assert stored(c, new) == row(9, 100)


def test_idle_ones_are_bounded() -> None:
    c = cache(64)
    for seed in range(MAX_IDLE + 5):
        c.close(grown(c, row(seed, 10)))
    assert len(c.idle) == MAX_IDLE and len(c.free) == 64 - MAX_IDLE
    c.close(c.open([]))  # an empty one is not kept
    assert len(c.idle) == MAX_IDLE


def test_the_table_of_several() -> None:
    c = cache()
    a, b = grown(c, row(1, 10)), grown(c, row(2, 130))
    assert c.table([a, b]).tolist() == [[a.pages[0], 0, 0], b.pages]
    assert c.table([a]).dtype == np.int32


def test_pages_are_never_lost_nor_shared() -> None:
    c, rng = cache(16), random.Random(11)
    running: list[tuple[Sequence, list[int]]] = []
    for _ in range(600):
        if running and (rng.random() < 0.5 or len(running) > 3):
            s, tokens = running.pop(rng.randrange(len(running)))
            assert stored(c, s) == tokens
            c.close(s)
        else:
            base = row(rng.randrange(4), 200)
            tokens = [*base[: rng.randrange(1, 200)], *row(rng.randrange(10**6), rng.randrange(1, 30))]
            running.append((grown(c, tokens), tokens))
        held = [p for s in [*c.idle, *(s for s, _ in running)] for p in s.pages] + c.free
        assert sorted(held) == list(range(16))


def test_common() -> None:
    assert [common(a, b) for a, b in (([], [1]), ([1, 2], [1, 2, 3]), ([1, 2, 3], [1, 5, 3]), ([4], [5]))] == [0, 2, 1, 0]
