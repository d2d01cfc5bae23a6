"""Which tokens may be chosen, with which probabilities, against the processors of `transformers`; where answers end."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from pliant import Error
from pliant.llm.sampling import Sampler, SamplingOptions, distribution
from pliant.llm.stop import StopStrings

WORDS = 200
NOTHING: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}


def logits(seed: int) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(seed).standard_normal(WORDS) * 3).astype(np.float32)


def of_transformers(scores: np.ndarray[Any, Any], history: list[int], given: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The probabilities of all tokens after the processors that the options name, in the order in which they are given."""
    pytest.importorskip("transformers")
    import torch
    from transformers.generation import logits_process as theirs

    made = {
        "repetition_penalty": theirs.RepetitionPenaltyLogitsProcessor,
        "top_k": theirs.TopKLogitsWarper,
        "temperature": theirs.TemperatureLogitsWarper,
        "min_p": theirs.MinPLogitsWarper,
        "top_p": theirs.TopPLogitsWarper,
    }
    found = torch.from_numpy(scores.astype(np.float64))[None]
    for name, value in given.items():
        found = made[name](value)(torch.tensor([history]), found)
    chances: np.ndarray[Any, Any] = torch.softmax(found[0], -1).numpy()
    return chances


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "given",
    [
        {"temperature": 0.7},
        {"temperature": 2.5},
        {"top_k": 1},
        {"top_k": 40},
        {"top_p": 0.9},
        {"top_p": 0.01},
        {"min_p": 0.05},
        {"min_p": 1.0},
        {"top_k": 20, "temperature": 1.7, "top_p": 0.8},
        {"top_k": 20, "temperature": 0.6, "min_p": 0.1},
    ],
    ids=str,
)
def test_probabilities_are_those_of_transformers(given: dict[str, Any], seed: int) -> None:
    scores = logits(seed).astype(np.float64)
    tokens, chances = distribution(scores, SamplingOptions(**{**NOTHING, **given}))
    found = np.zeros(WORDS)
    found[tokens] = chances
    np.testing.assert_allclose(found, of_transformers(scores, [], given), rtol=1e-9, atol=1e-300)
    assert (np.diff(chances) <= 0).all()


@pytest.mark.parametrize("penalty", [1.3, 0.5])
def test_what_was_said_is_penalised_as_in_transformers(penalty: float) -> None:
    for seed in range(20):
        scores, history = logits(seed), [int(t) for t in np.argsort(-logits(seed))[:5]] * 2 + [int(logits(seed).argmin())]
        sampler = Sampler(SamplingOptions(temperature=0, repetition_penalty=penalty))
        assert sampler.sample(scores, history) == of_transformers(scores, history, {"repetition_penalty": penalty}).argmax()


def test_only_the_window_is_penalized() -> None:
    scores = np.array([5.0, 4.0, 3.0], np.float32)
    choose = Sampler(SamplingOptions(temperature=0, repetition_penalty=2, repetition_window=2)).sample
    assert [choose(scores, history) for history in ([0], [0, 1], [0, 1, 2], [1, 0, 2])] == [1, 2, 0, 1]


def test_draws_come_as_often_as_they_are_likely() -> None:
    options = SamplingOptions(**{**NOTHING, "top_k": 6, "seed": 11})
    sampler, scores, count = Sampler(options), logits(5) / 3, 4000
    drawn = np.bincount([sampler.sample(scores) for _ in range(count)], minlength=WORDS)
    wanted = of_transformers(scores, [], {"top_k": 6})
    assert (np.abs(drawn - count * wanted) <= 4.5 * np.sqrt(count * wanted * (1 - wanted))).all()


def test_rows_that_are_no_numbers() -> None:
    choose = Sampler(SamplingOptions(temperature=0)).sample
    assert choose(np.array([np.nan, -np.inf, -3.0, np.nan], np.float32)) == 2
    for row in ([np.nan, np.nan], [-np.inf, -np.inf], [0.0, np.inf]):
        with pytest.raises(Error, match="not numbers"):
            choose(np.array(row, np.float32))


def shown(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The text before the stop string that is complete first (the longest where several are), found by looking at every end."""
    for end in range(1, len(text) + 1):
        if complete := [s for s in stops if text[:end].endswith(s)]:
            return text[: end - len(max(complete, key=len))], max(complete, key=len)
    return text, None


def test_answers_end_before_a_stop_string_however_they_are_cut() -> None:
    chance = random.Random(5)
    for _ in range(300):
        text = "".join(chance.choices("abé🙂", k=30))
        stops = ["".join(chance.choices("abé🙂", k=chance.randint(1, 6))) for _ in range(chance.randint(0, 3))]
        watcher, came, at = StopStrings(stops), "", 0
        wanted, stop = shown(text, stops)
        while at < len(text) and watcher.found is None:
            size = chance.randint(1, 4)
            came += watcher.push(text[at : at + size])
            assert wanted.startswith(came)  # nothing that must be taken back
            at += size
        assert (came + watcher.finish(), watcher.found) == (wanted, stop)
