"""The default model with its real weights, when it can be fetched: logits against float64 of the dequantized weights, and an answer."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from pliant import Error
from pliant.llm.lm import LLM
from pliant.llm.locate import locate
from reference_decoder import logits
from tiny_models import Shape


@cache
def model() -> LLM | str:
    try:
        path = locate("smollm2-135m")
    except Error as problem:
        return str(problem).splitlines()[0]
    return LLM(path, context=1024)


@pytest.fixture
def lm() -> LLM:
    found = model()
    if isinstance(found, str):
        pytest.skip(f"the model cannot be fetched: {found}")
    return found


class Float64(dict[str, Any]):
    """Tensors in float64, dequantized when they are asked for and not kept: all together are a gigabyte."""

    def __init__(self, lm: LLM) -> None:
        super().__init__()
        self.tensors = lm.file.tensors

    def __missing__(self, name: str) -> Any:
        return self.tensors[name].dequantized().astype(np.float64)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self.tensors else default


def test_logits_are_those_of_float64(lm: LLM) -> None:
    ids = lm.prompts.encode("Why is the sky blue?")
    expected = logits(Float64(lm), Shape(576, 9, 3, 64, 1536, 30, 8192, 100000.0, 1e-5), "llama", ids)
    found = lm.logits(ids)
    # What activations of 8 bits cost over 30 layers: llama.cpp is off by 0.042 on average and 0.055 at worst (benchmarks/quality.py).
    assert np.sqrt(((found - expected) ** 2).mean()) / expected.std() < 0.07
    assert np.mean(found.argmax(-1) == expected.argmax(-1)) > 0.9
    assert found[-1].argmax() == expected[-1].argmax()


def test_it_answers(lm: LLM) -> None:
    assert "light" in lm.generate("Why is the sky blue?", temperature=0, max_tokens=40).text
    assert "Paris" in lm.generate("The capital of France is", raw=True, temperature=0, max_tokens=8).text
    talk = lm.session()
    # The model is sure of this answer. Of others ("What is my name?") it is not: last bits, which 8-bit activations make larger, decide.
    talk.ask("The secret word is banana. Repeat the secret word.", temperature=0, max_tokens=30)
    second = talk.ask("What is the secret word?", temperature=0, max_tokens=30)
    assert "banana" in second.text and second.usage.cached_tokens > 40
