"""What a step of a model refuses: a sequence twice, closed or of another model; tokens that do not exist; too much at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pliant import Error
from pliant.frontends.gguf import open_gguf
from pliant.llm.engine import Engine, Part
from pliant.llm.kv_cache import PAGE, STEP_SEQUENCES, STEP_TOKENS, PageCache
from tiny_models import Shape, tiny_file, tiny_llm


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_llm().engine


def test_one_sequence_twice_in_a_step_is_refused_and_changes_nothing(engine: Engine) -> None:
    """Both parts would be written to the same places, and the second would not see the first."""
    a, b = engine.cache.open(()), engine.cache.open(())
    expected = engine.feed(a, [5, 6, 7])
    engine.feed(b, [5])
    with pytest.raises(Error, match="one sequence twice"):
        engine.step([Part(b, [6]), Part(a, [1]), Part(b, [7])])
    assert (a.tokens, b.tokens) == ([5, 6, 7], [5])
    np.testing.assert_array_equal(engine.feed(b, [6, 7]), expected)
    for s in (a, b):
        engine.cache.release(s)


@pytest.mark.parametrize(
    ("tokens", "what"),
    [
        ([], "at least one token"),
        ([-1], "there is no token -1"),
        ([261], "there is no token 261: the vocabulary has 261"),
        ([1, 2**40], "there is no token"),
        ([1.5], "tokens are whole numbers, and 1.5 is none"),
        (["5"], "tokens are whole numbers, and '5' is none"),
        ([None], "tokens are whole numbers"),
        (np.array([1.0, 2.0]), "tokens are whole numbers"),
    ],
)
def test_tokens_that_do_not_exist_are_refused_before_anything_is_taken(engine: Engine, tokens: Any, what: str) -> None:
    s, other = engine.cache.open(()), engine.cache.open(())
    free = len(engine.cache.free)
    with pytest.raises(Error, match=what):
        engine.step([Part(other, [1]), Part(s, tokens)])
    assert len(engine.cache.free) == free and s.tokens == [] and other.tokens == []
    for way in (engine.feed, engine.feed_all):
        with pytest.raises(Error, match=what):
            way(s, tokens)


def test_tokens_may_be_of_numpy(engine: Engine) -> None:
    s, t = engine.cache.open(()), engine.cache.open(())
    np.testing.assert_array_equal(engine.feed(s, np.array([3, 1, 4])), engine.feed(t, [3, 1, 4]))
    assert s.tokens == [3, 1, 4] and all(type(i) is int for i in s.tokens)
    for one in (s, t):
        engine.cache.release(one)


def test_steps_of_nothing_and_of_too_much_are_refused(engine: Engine) -> None:
    with pytest.raises(Error, match="at least one sequence"):
        engine.step([])
    many = [Part(engine.cache.open(()), [1]) for _ in range(STEP_SEQUENCES + 1)]
    with pytest.raises(Error, match=f"takes {STEP_SEQUENCES} sequences, and there are {STEP_SEQUENCES + 1}"):
        engine.step(many)
    with pytest.raises(Error, match=f"takes {STEP_TOKENS} tokens of all sequences, and there are {STEP_TOKENS + 1}"):
        engine.step([Part(engine.cache.open(()), [1] * (STEP_TOKENS + 1))])
    for chunk in (0, -1, STEP_TOKENS + 1):
        with pytest.raises(Error, match="`chunk` is"):
            engine.feed(engine.cache.open(()), [1], chunk)


def test_more_tokens_than_the_context_or_the_pages_are_refused(engine: Engine) -> None:
    s = engine.cache.open(())
    with pytest.raises(Error, match=r"the text has 513 tokens, and the context holds 512"):
        engine.step([Part(s, [1] * 513)])
    held = [engine.cache.open(()) for _ in range(engine.cache.pages)]
    for one in held:
        engine.cache.reserve(one, 1)
    with pytest.raises(Error, match="is full"):
        engine.step([Part(s, [1])])
    assert s.tokens == []
    for one in held:
        engine.cache.release(one)


def test_a_sequence_that_was_closed_is_not_stepped(engine: Engine) -> None:
    """Its pages are those of whoever begins with the same tokens."""
    s = engine.cache.open(())
    engine.feed(s, [9, 8, 7])
    engine.cache.close(s)
    with pytest.raises(Error, match="the sequence was closed"):
        engine.step([Part(s, [6])])
    with pytest.raises(Error, match="the sequence was closed"):
        engine.cache.reserve(s, 100)


def test_closing_twice_lends_the_pages_once(engine: Engine) -> None:
    s = engine.cache.open(())
    engine.feed(s, [9, 8, 7, 6])
    engine.cache.close(s)
    engine.cache.close(s)
    assert sum(one is s for one in engine.cache.idle) == 1
    a = engine.cache.open([9, 8, 7, 6, 5])
    b = engine.cache.open([9, 8, 7, 6, 5])
    assert a.length == 4
    assert not set(a.pages) & set(b.pages)
    for one in (a, b):
        engine.cache.release(one)


def test_sequences_of_another_model_are_refused(engine: Engine) -> None:
    other = PageCache(4, layers=2, kv_heads=2, size=16, kind=np.float16)
    foreign = other.open(())
    with pytest.raises(Error, match="of another model's cache"):
        engine.step([Part(foreign, [1])])
    engine.cache.close(foreign)
    assert foreign not in engine.cache.idle and foreign.owner is other


def test_a_sequence_has_no_negative_length(engine: Engine) -> None:
    s = engine.cache.open(())
    engine.feed(s, [1, 2, 3])
    with pytest.raises(Error, match="cannot have -1 tokens"):
        engine.cache.shorten(s, -1)
    assert s.tokens == [1, 2, 3]
    engine.cache.shorten(s, 5)
    assert s.tokens == [1, 2, 3]
    engine.cache.release(s)


@pytest.mark.parametrize("context", [0, -5, 513, 1.5, True, "all"])
def test_a_context_that_cannot_be_is_refused(context: Any) -> None:
    with pytest.raises(Error, match="`context` is"):
        Engine(open_gguf(tiny_file()), context=context)


def test_the_context_is_no_longer_than_the_pages_of_a_step() -> None:
    """A model may be made for more tokens than one table of pages holds."""
    path = tiny_file("llama", ("Q8_0",), Shape(context=1 << 20))
    assert Engine(open_gguf(path)).context == 4096 * PAGE
    with pytest.raises(Error, match="at most 262144 tokens are supported"):
        Engine(open_gguf(path), context=262145)


def test_logits_of_what_are_no_tokens_are_refused() -> None:
    with pytest.raises(Error, match="whole numbers"):
        tiny_llm().logits([1.7])  # type: ignore[list-item]
    with pytest.raises(Error, match="logits of no tokens"):
        tiny_llm().logits([])
