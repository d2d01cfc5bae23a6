"""A decoder as onnxruntime-genai exports it: a prompt, then tokens, through its cache, against onnxruntime; one program for all lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="models are made with the package onnx")
pytest.importorskip("onnxruntime", reason="it is what results are compared with")
import onnxruntime as ort

import pliant.onnxruntime
from decoder_models import decoder

LAYERS, KV, D, WORDS = 2, 2, 16, 96


def step(session: Any, ids: Any, cache: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Logits of new tokens, and the cache with them."""
    held = cache["past.0.key"].shape[2]
    mask = np.ones((len(ids), held + ids.shape[1]), np.int64)
    logits, *caches = session.run(None, {"input_ids": ids, "attention_mask": mask, **cache})
    return logits, dict(zip(cache, caches, strict=True))


def empty(batch: int) -> dict[str, Any]:
    return {f"past.{n}.{part}": np.zeros((batch, KV, 0, D), np.float32) for n in range(LAYERS) for part in ("key", "value")}


@pytest.mark.parametrize("level", [0, 4])
def test_prompt_and_tokens(level: int) -> None:
    proto = decoder(layers=LAYERS, width=64, heads=4, kv=KV, inner=96, words=WORDS, level=level)
    sessions = [of.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]) for of in (pliant.onnxruntime, ort)]
    rng = np.random.default_rng(level)
    for batch, prompt in ((1, 9), (3, 4)):
        caches = [empty(batch), empty(batch)]
        ids = rng.integers(0, WORDS, (batch, prompt))
        for _ in range(4):
            (found, caches[0]), (wanted, caches[1]) = (step(s, ids, cache) for s, cache in zip(sessions, caches, strict=True))
            size = np.abs(wanted).max()
            # At level 4 activations are rounded to 8 bits; one that lies at a half may go either way in the two.
            np.testing.assert_allclose(found, wanted, rtol=0, atol=size * (0.02 if level == 4 else 2e-5))
            for name, a in caches[0].items():
                assert a.shape == caches[1][name].shape
            ids = wanted[:, -1:].argmax(axis=-1)


def test_rows_alone_and_together() -> None:
    """A prompt at once and in two parts gives the same logits, up to rounding."""
    proto = decoder(layers=LAYERS, width=64, heads=4, kv=KV, inner=96, words=WORDS)
    session = pliant.onnxruntime.InferenceSession(proto.SerializeToString())
    ids = np.random.default_rng(2).integers(0, WORDS, (1, 8))
    whole, _ = step(session, ids, empty(1))
    _, cache = step(session, ids[:, :5], empty(1))
    rest, _ = step(session, ids[:, 5:], cache)
    np.testing.assert_allclose(rest, whole[:, 5:], rtol=1e-4, atol=1e-5)
