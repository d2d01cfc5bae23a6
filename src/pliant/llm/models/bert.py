"""BERT as a sentence embedder: computes one vector per text from token ids and mask, by mean pooling or from the first (CLS) token.

    model = Bert(Settings(width=384, heads=12, ffn=1536, layers=6, vocab_size=30522, positions=512))
    model.load_state_dict(weights)

Modules are named as in the weight files, so that `load_state_dict` accepts them. Ids and mask are i64[b, n], padded at the end.
"""

from __future__ import annotations

from typing import Any

from ... import Tensor, dim, i64, nn, ops
from ...support.record import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration of a BERT model: its sizes, and its pooling."""

    width: int
    heads: int
    ffn: int
    layers: int
    vocab_size: int
    positions: int
    kinds: int = 2  # number of segment (token type) embeddings; only the first is used
    eps: float = 1e-12
    first: bool = False  # pools the first token instead of the mean
    normalized: bool = True  # divides the vector by its L2 norm


class Embeddings(nn.Module):
    """A layer of BERT: layer norm of the sum of word, position and segment embeddings."""

    def __init__(self, s: Settings) -> None:
        self.word_embeddings = nn.Embedding(s.vocab_size, s.width)
        self.position_embeddings = nn.Embedding(s.positions, s.width)
        self.token_type_embeddings = nn.Embedding(s.kinds, s.width)
        self.LayerNorm = nn.LayerNorm(s.width, eps=s.eps)

    def forward(self, ids: Any) -> Any:
        positions = self.position_embeddings.weight[: ids.shape[1]]  # [n, width]
        return self.LayerNorm(self.word_embeddings(ids) + positions + self.token_type_embeddings.weight[0])


class SelfAttention(nn.Module):
    """A layer of BERT: multi-head self-attention without the output projection."""

    def __init__(self, s: Settings) -> None:
        self.query, self.key, self.value = (nn.Linear(s.width, s.width) for _ in range(3))
        self.heads = s.heads

    def forward(self, x: Any, mask: Any) -> Any:
        q, k, v = (nn.split_heads(layer(x), self.heads) for layer in (self.query, self.key, self.value))  # [b, heads, n, size]
        return nn.join_heads(nn.attention(q, k, v, mask))


class AddNorm(nn.Module):
    """A layer of BERT: a linear layer, the residual connection, and layer norm."""

    def __init__(self, s: Settings, columns: int) -> None:
        self.dense = nn.Linear(columns, s.width)
        self.LayerNorm = nn.LayerNorm(s.width, eps=s.eps)

    def forward(self, x: Any, around: Any) -> Any:
        return self.LayerNorm(self.dense(x) + around)


class Attention(nn.Module):
    """A layer of BERT: self-attention with output projection, residual connection and norm."""

    def __init__(self, s: Settings) -> None:
        self.self, self.output = SelfAttention(s), AddNorm(s, s.width)

    def forward(self, x: Any, mask: Any) -> Any:
        return self.output(self.self(x, mask), x)


class Intermediate(nn.Module):
    """A layer of BERT: the first (widening) layer of the feed-forward network, with GELU."""

    def __init__(self, s: Settings) -> None:
        self.dense = nn.Linear(s.width, s.ffn)

    def forward(self, x: Any) -> Any:
        return ops.gelu(self.dense(x))


class Layer(nn.Module):
    """One encoder layer of BERT: attention and feed-forward network."""

    def __init__(self, s: Settings) -> None:
        self.attention, self.intermediate, self.output = Attention(s), Intermediate(s), AddNorm(s, s.ffn)

    def forward(self, x: Any, mask: Any) -> Any:
        x = self.attention(x, mask)
        return self.output(self.intermediate(x), x)


class Encoder(nn.Module):
    """All encoder layers of BERT, one after the other."""

    def __init__(self, s: Settings) -> None:
        self.layer = nn.ModuleList([Layer(s) for _ in range(s.layers)])

    def forward(self, x: Any, mask: Any) -> Any:
        for layer in self.layer:
            x = layer(x, mask)
        return x


class Bert(nn.Module):
    """The whole BERT model, which returns one vector per text: f32[b, width]."""

    def __init__(self, s: Settings) -> None:
        self.settings = s
        self.embeddings, self.encoder = Embeddings(s), Encoder(s)
        b, n = dim("b", min=1), dim("n", min=1, max=s.positions)
        self.inputs = {"ids": Tensor[i64, b, n], "mask": Tensor[i64, b, n]}

    def forward(self, ids: Any, mask: Any) -> Any:
        kind = self.embeddings.LayerNorm.weight.dtype
        seen = ops.cast(mask, kind)  # [b, n], 1 for a token, 0 for padding
        far = (1.0 - seen)[:, None, None, :] * -1e30
        pooled = self.pool(self.encoder(self.embeddings(ids), far), seen)
        if not self.settings.normalized:
            return pooled
        return pooled / ops.maximum(ops.sqrt(ops.sum(pooled * pooled, axis=1, keepdims=True)), 1e-12)

    def pool(self, states: Any, seen: Any) -> Any:
        """Returns one vector per text: that of the first token, or the mean over its tokens."""
        if self.settings.first:
            return states[:, 0]
        return ops.sum(states * seen[:, :, None], axis=1) / ops.maximum(ops.sum(seen, axis=1, keepdims=True), 1e-9)
