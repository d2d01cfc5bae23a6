"""Families of decoders as transformers saves them: which GGUF architecture a `model_type` is, its settings, and its tensors.

    model = describe(config)       # "llama"
    model.architecture, model.metadata["llama.block_count"], model.pieces[0]

A `Piece` is a tensor that the folder must have, under its name there and under its name in GGUF. A family adds what it has beside llama.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...support.errors import ModelFileError, UnsupportedError
from ...support.record import dataclass
from ..gguf.parse import shown
from ..gguf.reader import GgufTensor
from . import gpt_oss
from .config import Config
from .known import NEUTRAL, SILENT
from .rope import Rotation, parameters_of, read_rotation, rotation_of
from .sizes import WIDTHS, Layer, Piece, Sizes, attention, layer_kinds

Join = Callable[[dict[str, GgufTensor], Sizes], dict[str, GgufTensor]]


@dataclass(frozen=True, slots=True)
class Described:
    """A model as GGUF describes it: architecture, metadata, the tensors to take from the folder, and those that the config gives."""

    architecture: str
    metadata: dict[str, Any]
    pieces: list[Piece]
    given: dict[str, np.ndarray[Any, Any]]
    tied: bool  # the head is the embedding
    sizes: Sizes
    join: Join | None = None  # brings tensors into GGUF's form


@dataclass(frozen=True, slots=True)
class Family:
    """A record of a `model_type`: its GGUF architecture, what its configs default to, and what it adds to a llama."""

    architecture: str
    tied: bool = False  # the default of `tie_word_embeddings`
    activation: tuple[str, str] = ("hidden_act", "silu")  # the key of the activation, and its value
    own_head: bool = False  # the size of a head is in the config
    qkv_bias: bool = False
    qk_norm: bool = False
    plus: float = 0.0  # what GGUF adds to the weights of norms
    layer: Callable[[Config, Sizes], Layer] | None = None  # tensors of a layer; None: those of llama
    extra: Callable[[Config, Sizes], dict[str, Any]] | None = None  # more metadata
    rotation: Callable[[Config, Sizes], Rotation] | None = None
    silent: tuple[str, ...] = ()  # keys that this family's model ignores
    more: Callable[[Config, Sizes, int], Iterator[Piece]] | None = None  # more tensors of a layer
    join: Join | None = None  # brings its tensors into GGUF's form


def describe(config: Config) -> Described:
    """Returns the model of a config in GGUF's words.

    Raises UnsupportedError for another family or a key that is not known, ModelFileError for a value that is missing or wrong.
    """
    kind = config.text("model_type")
    if (family := FAMILIES.get(kind)) is None:
        raise _unknown(config, kind)
    if config.get("quantization_config") is not None and family.architecture != "gpt-oss":
        raise UnsupportedError(
            f"{config.name}: weights that are quantized (`quantization_config`) are not supported",
            facts=["supported: weights in f32, f16 and bf16"],
            help="a GGUF file of the model has quantized weights that are supported",
        )
    s = _sizes(config, family)
    key, usual = family.activation
    if config.text(key, usual) != usual:
        raise config.wrong(key, f"`{usual}`")
    rotation = family.rotation(config, s) if family.rotation else _whole_rotation(config, s)
    metadata = _settings(config, s) | rotation.metadata | (family.extra(config, s) if family.extra else {})
    tied = config.flag("tie_word_embeddings", family.tied)
    pieces = [*_pieces(config, family, s), *([] if tied else [Piece("lm_head.weight", "output.weight", (s.vocabulary, s.width))])]
    config.refuse_unread(NEUTRAL, SILENT | {*family.silent})
    general = {"general.architecture": family.architecture, "general.name": _name(config, kind)}
    whole = general | {f"{family.architecture}.{key}": value for key, value in metadata.items()}
    return Described(family.architecture, whole, pieces, rotation.tensors, tied, s, family.join)


def _unknown(config: Config, kind: str) -> UnsupportedError:
    """Returns the error for a `model_type` that is no known decoder."""
    return UnsupportedError(
        f"{config.name}: models of the kind `{shown(kind)}` are not supported",
        facts=["supported: " + ", ".join(sorted(FAMILIES))],
        help="pliant.Embedder makes vectors of texts by such a model" if kind == "bert" else "a GGUF file of the model may be supported",
    )


def _name(config: Config, kind: str) -> str:
    name = config.get("_name_or_path")
    return name if isinstance(name, str) and name else kind


def _sizes(config: Config, family: Family) -> Sizes:
    """Reads the sizes; raises ModelFileError if they are missing, out of range, or do not fit together."""
    width, heads = config.integer("hidden_size", **WIDTHS), config.integer("num_attention_heads", low=1, high=4096)
    usual = () if family.own_head else (width // heads,)
    kv_heads = config.integer("num_key_value_heads", *([heads] if family.architecture == "llama" else []), low=1, high=heads)
    if heads % kv_heads or (usual and "head_dim" not in config.values and width % heads):
        raise ModelFileError(f"{config.name}: a width of {width}, {heads} heads and {kv_heads} for keys do not fit")
    return Sizes(
        width=width,
        layers=config.integer("num_hidden_layers", low=1, high=512),
        heads=heads,
        kv_heads=kv_heads,
        head=config.integer("head_dim", *usual, low=2, high=1024),
        ffn=config.integer("intermediate_size", **WIDTHS),
        vocabulary=config.integer("vocab_size", low=1, high=1 << 22),
        context=config.integer("max_position_embeddings", low=1),
    )


def _settings(config: Config, s: Sizes) -> dict[str, Any]:
    """Returns the metadata that all families have."""
    return {
        "embedding_length": s.width,
        "block_count": s.layers,
        "attention.head_count": s.heads,
        "attention.head_count_kv": s.kv_heads,
        "attention.key_length": s.head,
        "attention.value_length": s.head,
        "feed_forward_length": s.ffn,
        "context_length": s.context,
        "attention.layer_norm_rms_epsilon": float(np.float32(config.positive("rms_norm_eps"))),  # f32 in GGUF
    }


def _whole_rotation(config: Config, s: Sizes) -> Rotation:
    """Returns the rotation of a family whose heads are rotated as a whole; raises UnsupportedError for another."""
    found = rotation_of(config, s.head)
    if found.metadata["rope.dimension_count"] != s.head or "rope_factors_short.weight" in found.tensors:
        raise UnsupportedError(f"{config.name}: partial rotation, and factors for short and long texts, are supported for phi3 only")
    return found


def _pieces(config: Config, family: Family, s: Sizes) -> Iterator[Piece]:
    """Yields the tensors that the folder must have, but the head."""
    biased = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"} if family.qkv_bias else set()
    if config.flag("attention_bias", False):
        biased |= {f"self_attn.{side}_proj" for side in "qkvo"}
    if family.architecture == "llama" and config.flag("mlp_bias", False):
        biased |= {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}
    layer = (family.layer or _llama_layer)(config, s)
    if family.qk_norm:
        layer |= {f"self_attn.{side}_norm": (f"attn_{side}_norm", (s.head,)) for side in "qk"}
    yield Piece("model.embed_tokens.weight", "token_embd.weight", (s.vocabulary, s.width))
    yield Piece("model.norm.weight", "output_norm.weight", (s.width,), family.plus)
    for number in range(s.layers):
        for name, (gguf, shape) in layer.items():
            theirs, ours = f"model.layers.{number}.{name}", f"blk.{number}.{gguf}"
            yield Piece(f"{theirs}.weight", f"{ours}.weight", shape, family.plus if len(shape) == 1 else 0.0)
            if name in biased:
                yield Piece(f"{theirs}.bias", f"{ours}.bias", shape[:1])
        yield from family.more(config, s, number) if family.more else ()


def _feed_forward(s: Sizes) -> Layer:
    return {
        "mlp.gate_proj": ("ffn_gate", (s.ffn, s.width)),
        "mlp.up_proj": ("ffn_up", (s.ffn, s.width)),
        "mlp.down_proj": ("ffn_down", (s.width, s.ffn)),
    }


def _norms(s: Sizes) -> Layer:
    return {"input_layernorm": ("attn_norm", (s.width,)), "post_attention_layernorm": ("ffn_norm", (s.width,))}


def _llama_layer(config: Config, s: Sizes) -> Layer:
    return {**_norms(s), **attention(s), **_feed_forward(s)}


def _experts_layer(config: Config, s: Sizes) -> Layer:
    """The tensors of a layer with experts; raises ModelFileError for sizes that are missing or wrong."""
    count, ffn = _expert_count(config), config.integer("moe_intermediate_size", **WIDTHS)
    return {
        **_norms(s),
        **attention(s),
        "mlp.gate": ("ffn_gate_inp", (count, s.width)),
        "mlp.experts.{}.gate_proj": ("ffn_gate_exps", (count, ffn, s.width)),
        "mlp.experts.{}.up_proj": ("ffn_up_exps", (count, ffn, s.width)),
        "mlp.experts.{}.down_proj": ("ffn_down_exps", (count, s.width, ffn)),
    }


def _expert_count(config: Config) -> int:
    """Returns the number of experts, which has another key in newer configs."""
    return config.integer("num_local_experts" if "num_local_experts" in config.values else "num_experts", low=1, high=4096)


def _experts(config: Config, s: Sizes) -> dict[str, Any]:
    """Returns the metadata of a Qwen with experts; raises UnsupportedError for layers without them, and for another weighting."""
    if not config.flag("norm_topk_prob", False):
        raise UnsupportedError(f"{config.name}: experts with weights whose sum is not 1 (`norm_topk_prob`) are not supported")
    if config.integer("decoder_sparse_step", 1) != 1 or config.get("mlp_only_layers"):
        raise UnsupportedError(f"{config.name}: layers without experts (`decoder_sparse_step`, `mlp_only_layers`) are not supported")
    return {
        **_full_attention(config, s),
        "expert_count": _expert_count(config),
        "expert_used_count": config.integer("num_experts_per_tok", low=1, high=64),
        "expert_feed_forward_length": config.integer("moe_intermediate_size", **WIDTHS),
    }


def _gemma_layer(config: Config, s: Sizes) -> Layer:
    norms = {
        "input_layernorm": ("attn_norm", (s.width,)),
        "post_attention_layernorm": ("post_attention_norm", (s.width,)),
        "pre_feedforward_layernorm": ("ffn_norm", (s.width,)),
        "post_feedforward_layernorm": ("post_ffw_norm", (s.width,)),
    }
    return {**norms, **attention(s), **_feed_forward(s)}


def _phi_layer(config: Config, s: Sizes) -> Layer:
    q, kv = s.heads * s.head, s.kv_heads * s.head
    return {
        **_norms(s),
        "self_attn.qkv_proj": ("attn_qkv", (q + 2 * kv, s.width)),
        "self_attn.o_proj": ("attn_output", (s.width, q)),
        "mlp.gate_up_proj": ("ffn_up", (2 * s.ffn, s.width)),
        "mlp.down_proj": ("ffn_down", (s.width, s.ffn)),
    }


def _window(usual: int) -> Callable[[Config, Sizes], dict[str, Any]]:
    """Returns the reader of the sliding window that all layers have; `usual` is that of configs without the key."""

    def read(config: Config, s: Sizes) -> dict[str, Any]:
        window = config.integer("sliding_window", usual) if "sliding_window" not in config.empty else 0
        return {"attention.sliding_window": window} if 0 < window < s.context else {}

    return read


def _full_attention(config: Config, s: Sizes) -> dict[str, Any]:
    """Raises UnsupportedError if a layer of a Qwen has a sliding window; returns no metadata."""
    if layer_kinds(config, s, ["full_attention"] * s.layers) != ["full_attention"] * s.layers:
        raise UnsupportedError(f"{config.name}: `layer_types` with sliding windows are not supported for {config.text('model_type')}")
    return {}


def _gemma(config: Config, s: Sizes) -> dict[str, Any]:
    """Returns the metadata of Gemma 2 and 3: window, which layers have it, caps, and the scale of scores."""
    third = config.text("model_type") != "gemma2"
    period = config.integer("sliding_window_pattern", config.integer("_sliding_window_pattern", 6, low=1), low=1) if third else 2
    usual = ["full_attention" if (number + 1) % period == 0 else "sliding_attention" for number in range(s.layers)]
    windowed = [kind == "sliding_attention" for kind in layer_kinds(config, s, usual)]
    caps = {"attn_logit_softcapping": (50.0, "attn_logit_softcapping"), "final_logit_softcapping": (30.0, "final_logit_softcapping")}
    found: dict[str, Any] = {
        "attention.sliding_window": config.integer("sliding_window", 4096, low=1),
        "attention.sliding_window_pattern": np.array(windowed, np.bool_),
        "attention.scale": config.positive("query_pre_attn_scalar") ** -0.5,
    }
    for key, (usual_cap, name) in caps.items():
        default = 0.0 if third or key in config.empty else usual_cap
        found[name] = config.positive(key) if config.get(key) is not None else default
    return found


def _gemma3_rotation(config: Config, s: Sizes) -> Rotation:
    """Returns the rotation of Gemma 3: that of full layers with its extension, and the base of layers with a window."""
    both = config.inner("rope_parameters")
    if "full_attention" not in both.values:
        found = read_rotation(config, *parameters_of(config, 1e6), s.head)
        return Rotation({**found.metadata, "rope.freq_base_swa": config.positive("rope_local_base_freq", 10000.0)}, found.tensors)
    full, local = both.inner("full_attention"), both.inner("sliding_attention")
    both.refuse_unread({})
    found = read_rotation(config, full, full.positive("rope_theta", 1e6), s.head)
    base = local.positive("rope_theta", 10000.0)
    if local.text("rope_type", "default") != "default":
        raise local.wrong("rope_type", "`default`")
    local.refuse_unread({})
    return Rotation({**found.metadata, "rope.freq_base_swa": base}, found.tensors)


def _phi_rotation(config: Config, s: Sizes) -> Rotation:
    """Returns the rotation of Phi 3: of a part of a head, with factors for short and long texts."""
    config.get("original_max_position_embeddings")
    return rotation_of(config, s.head)


_QWEN = ("sliding_window", "max_window_layers")  # of models without `use_sliding_window`
_GELU = ("hidden_activation", "gelu_pytorch_tanh")
FAMILIES = {
    "llama": Family("llama"),
    "mistral": Family("llama", extra=_window(4096)),
    "qwen2": Family("qwen2", qkv_bias=True, extra=_full_attention, silent=_QWEN),
    "qwen3": Family("qwen3", own_head=True, qk_norm=True, extra=_full_attention, silent=_QWEN),
    "qwen3_moe": Family("qwen3moe", own_head=True, qk_norm=True, layer=_experts_layer, extra=_experts, silent=_QWEN),
    "gemma2": Family("gemma2", True, _GELU, True, plus=1.0, layer=_gemma_layer, extra=_gemma, silent=("hidden_act",)),
    "gemma3_text": Family("gemma3", True, _GELU, True, qk_norm=True, plus=1.0, layer=_gemma_layer, extra=_gemma, rotation=_gemma3_rotation),
    "gpt_oss": Family(
        "gpt-oss",
        own_head=True,
        layer=gpt_oss.layer,
        extra=gpt_oss.settings,
        rotation=gpt_oss.rotation,
        more=gpt_oss.more,
        join=gpt_oss.join,
        silent=("experts_per_token", "initial_context_length"),
    ),
    "phi3": Family("phi3", layer=_phi_layer, extra=_window(0), rotation=_phi_rotation),
}  # `model_type` -> what it is
