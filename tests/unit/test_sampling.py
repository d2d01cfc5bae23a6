"""Sampling: against plain definitions and the draws they predict; seeds, penalties, stop strings across pieces."""

from __future__ import annotations

import hashlib
import math
import random
from typing import Any

import numpy as np
import pytest
from counts import count
from numpy.typing import NDArray

from pliant import Error
from pliant.llm.sampling import Sampler, SamplingOptions, Stream, distribution
from pliant.llm.stop import StopStrings

EVERYTHING = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def row(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def test_greedy_takes_the_first_of_the_best() -> None:
    greedy = Sampler(SamplingOptions(temperature=0))
    assert greedy.sample(row(1, 3, 2, 3)) == 1
    assert greedy.sample(row(float("nan"), -5, -7)) == 1
    assert greedy.stream.taken == 0


def chosen(scores: list[float], **settings: Any) -> dict[int, float]:
    """The definition, in plain words: probabilities of what is left, by token."""
    options = SamplingOptions(**{**EVERYTHING, **settings})
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    order = order[: options.top_k or len(order)]
    weights = [math.exp((scores[i] - scores[order[0]]) / options.temperature) for i in order]
    chances = [w / sum(weights) for w in weights]
    kept = [
        i for i, p in enumerate(chances) if p >= options.min_p * chances[0] and (options.top_p == 1.0 or sum(chances[:i]) < options.top_p)
    ]
    total = sum(chances[i] for i in kept)
    return {order[i]: chances[i] / total for i in kept}


def test_distributions_are_as_defined() -> None:
    chance = random.Random(3)
    for _ in range(count(1_000, 100_000)):
        scores = [round(chance.gauss(0, 3), 1) for _ in range(chance.randrange(1, 40))]  # with equal ones
        settings = {
            "temperature": chance.choice((0.1, 0.7, 1.0, 2.0)),
            "top_k": chance.choice((0, 1, 3, 10, 100)),
            "top_p": chance.choice((0.1, 0.517, 0.9, 1.0)),
            "min_p": chance.choice((0.0, 0.05, 0.31)),
        }
        tokens, chances = distribution(np.array(scores, np.float64), SamplingOptions(**settings))
        expected = chosen(scores, **settings)
        assert tokens.tolist() == list(expected), settings
        assert chances.tolist() == pytest.approx(list(expected.values()))


def test_draws_follow_the_distribution() -> None:
    sampler = Sampler(SamplingOptions(**{**EVERYTHING, "seed": 5}))
    logits = row(0.0, 1.0, 2.0, -1.0)
    draws = [sampler.sample(logits) for _ in range(20_000)]
    expected = np.exp(logits) / np.exp(logits).sum()
    found = np.bincount(draws, minlength=4) / len(draws)
    assert np.abs(found - expected).max() < 4 * math.sqrt(0.25 / len(draws))


def test_a_seed_gives_the_same_tokens_and_others_give_others() -> None:
    logits = np.random.default_rng(1).normal(size=1000).astype(np.float32)

    def draws(seed: int | None) -> list[int]:
        sampler = Sampler(SamplingOptions(temperature=1.5, seed=seed))
        return [sampler.sample(logits) for _ in range(30)]

    assert draws(1) == draws(1) != draws(2)
    assert draws(None) != draws(None)
    again = Sampler(SamplingOptions(seed=None))
    assert Sampler(SamplingOptions(seed=again.seed)).stream.next() == again.stream.next()


def test_the_stream_is_fixed_for_ever() -> None:
    """A number of the stream depends on the seed and its place alone, by a definition that no library may change."""
    for seed, place in ((0, 0), (7, 3), (2**64 - 1, 1_000_000)):
        raw = hashlib.blake2b(seed.to_bytes(8, "little") + place.to_bytes(8, "little"), digest_size=8, person=b"pliant-sample").digest()
        assert Stream(seed, place).next() == (int.from_bytes(raw, "little") // 2**11) / 2**53
    numbers = [Stream(1, i).next() for i in range(5_000)]
    assert all(0 <= n < 1 for n in numbers) and abs(np.mean(numbers) - 0.5) < 0.02 and len(set(numbers)) == 5_000


def test_repetition_penalty() -> None:
    options = SamplingOptions(temperature=0, repetition_penalty=2.0, repetition_window=2)
    logits = row(4.0, 3.0, -1.0, -1.5)
    assert Sampler(options).sample(logits, [0, 0, 0]) == 1  # 4 / 2 < 3, however often it was said
    assert Sampler(options).sample(logits, [0, 2, 2]) == 0  # out of the window
    assert Sampler(options).sample(row(-1.0, -1.5), [0]) == 1  # -1 * 2 < -1.5
    assert logits.tolist() == [4.0, 3.0, -1.0, -1.5]
    assert Sampler(options).sample(logits, [99, -1]) == 0  # tokens of another vocabulary


def test_extreme_logits() -> None:
    everything = Sampler(SamplingOptions(**{**EVERYTHING, "seed": 1}))
    inf = float("inf")
    assert {everything.sample(row(-inf, 0, -inf)) for _ in range(20)} == {1}
    assert everything.sample(row(3e38, -3e38)) == 0
    assert Sampler(SamplingOptions(temperature=0.01, seed=1)).sample(row(1000, 0)) == 0
    for wrong in (row(), row(float("nan")), row(-inf, -inf), row(inf, 0), np.zeros((2, 2), np.float32)):
        with pytest.raises(Error):
            everything.sample(wrong)


def test_top_k_of_a_large_vocabulary_is_exact() -> None:
    logits = np.random.default_rng(2).integers(-50, 50, 50_000).astype(np.float64)  # many equal ones
    tokens, _ = distribution(logits, SamplingOptions(**{**EVERYTHING, "top_k": 777}))
    assert tokens.tolist() == sorted(range(50_000), key=lambda i: (-logits[i], i))[:777]


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_p": 1.5},
        {"top_k": -1},
        {"min_p": 2},
        {"repetition_penalty": 0},
        {"seed": -1},
        {"seed": 2**64},
        {"top_k": "3"},
    ],
    ids=str,
)
def test_options_out_of_range_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(Error, match=f"`{next(iter(wrong))}`"):
        SamplingOptions(**wrong)


# Stop strings.


def shown(stops: StopStrings, pieces: list[str]) -> str:
    said = ""
    for piece in pieces:
        said += stops.push(piece)
        if stops.found is not None:
            break
    return said + stops.finish()


def reference(stops: list[str], text: str) -> tuple[str, str | None]:
    """Letter by letter: the answer ends when a stop string is complete, before it."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            stop = max(ended, key=len)
            return text[: end - len(stop)], stop
    return text, None


def test_stop_strings_however_the_text_is_cut() -> None:
    chance = random.Random(4)
    for _ in range(count(3_000, 300_000)):
        stops = ["".join(chance.choice("ab") for _ in range(chance.randrange(1, 5))) for _ in range(chance.randrange(4))]
        text = "".join(chance.choice("abc") for _ in range(chance.randrange(20)))
        cuts = sorted(chance.randrange(len(text) + 1) for _ in range(chance.randrange(6)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        watch = StopStrings(stops)
        assert (shown(watch, pieces), watch.found) == reference(stops, text), (stops, pieces)


def test_text_is_held_back_only_where_it_must_be() -> None:
    stops = StopStrings(["\n\nUser:"])
    assert [stops.push(p) for p in ("Hi", "\n", "\n", "Us", "ually", " \n\nUser", ": x")] == ["Hi", "", "", "", "\n\nUsually", " ", ""]
    assert stops.found == "\n\nUser:" and stops.finish() == "" and stops.push("more") == ""


def test_stop_strings_have_limits() -> None:
    for wrong in ([""], ["x" * 257], ["x"] * 17, "text"):
        with pytest.raises(Error, match="stop strings"):
            StopStrings(wrong)
