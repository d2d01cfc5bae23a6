"""What readers of families share: the sizes of a decoder, the tensors that it needs, and those of its attention."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...support.record import dataclass
from .config import Config

WIDTHS = {"low": 1, "high": 1 << 20}
Layer = dict[str, tuple[str, tuple[int, ...]]]  # a name in the folder -> a name in GGUF, and the shape


class Piece(NamedTuple):
    """A record of a tensor that a model needs: its names in the folder and in GGUF, its shape, and what is added to its values.

    A name with `{}` stands for one tensor for each expert, which GGUF has as one tensor. `raw` tensors are bytes, to be joined later.
    """

    name: str
    gguf: str
    shape: tuple[int, ...]
    plus: float = 0.0
    raw: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the tensors in the folder: one, or one for each expert."""
        return [self.name.format(i) for i in range(self.shape[0])] if "{}" in self.name else [self.name]

    @property
    def shape_there(self) -> tuple[int, ...]:
        """The shape of each of these tensors."""
        return self.shape[1:] if "{}" in self.name else self.shape


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a decoder, as its config says."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    ffn: int
    vocabulary: int
    context: int


def attention(s: Sizes) -> Layer:
    """Returns the matrices of a layer's attention."""
    q, kv = s.heads * s.head, s.kv_heads * s.head
    return {
        "self_attn.q_proj": ("attn_q", (q, s.width)),
        "self_attn.k_proj": ("attn_k", (kv, s.width)),
        "self_attn.v_proj": ("attn_v", (kv, s.width)),
        "self_attn.o_proj": ("attn_output", (s.width, q)),
    }


def layer_kinds(config: Config, s: Sizes, usual: list[str]) -> list[str]:
    """Returns the kind of attention of each layer; raises ModelFileError unless there is one for each."""
    kinds: Any = config.get("layer_types")
    if kinds is None:
        return usual
    if not isinstance(kinds, list) or len(kinds) != s.layers or not {*map(str, kinds)} <= {"full_attention", "sliding_attention"}:
        raise config.wrong("layer_types", f"`full_attention` or `sliding_attention` for each of {s.layers} layers")
    return kinds
