"""Model files whose settings or tensors do not fit: each is refused before anything is compiled, and what is wrong is named."""

from __future__ import annotations

import dataclasses
import struct

import pytest

from gguf_files import F32, U32, Tensor, number, text, write
from pliant import Error, ModelFileError, UnsupportedError
from pliant.frontends.gguf.reader import from_bytes
from pliant.llm.models import FAMILIES, build
from tiny_models import EXPERTS, Shape, random_weights, settings_pairs, tokenizer_pairs


def file(
    architecture: str = "llama", change: dict[str, bytes | None] | None = None, drop: str = "", replace: Tensor | None = None
) -> bytes:
    """A tiny model with some metadata changed or missing, a tensor missing or another one."""
    s = shape(architecture)
    pairs = dict(settings_pairs(architecture, s)) | dict(tokenizer_pairs())
    pairs |= {k: v for k, v in (change or {}).items() if v is not None}
    tensors = [t for t in random_weights(architecture, s, ("F32",)).tensors if t.name != drop]
    if replace is not None:
        tensors = [replace if t.name == replace.name else t for t in tensors]
    return write([(k, v) for k, v in pairs.items() if k not in (change or {}) or (change or {})[k] is not None], tensors)


def shape(architecture: str) -> Shape:
    """The sizes of a tiny model, with what its architecture cannot do without."""
    window = 20 if architecture.startswith(("gemma", "phi", "gpt-oss")) else 0
    return Shape(window=window, experts=4, used=2) if architecture in EXPERTS else Shape(window=window)


def f32(name: str, *shape: int) -> Tensor:
    count = 1
    for d in shape:
        count *= d
    return Tensor(name, shape, 0, struct.pack(f"<{count}f", *[0.5] * count))


@pytest.mark.parametrize("architecture", sorted(FAMILIES))
def test_whole_files_are_taken(architecture: str) -> None:
    assert build(from_bytes(file(architecture), "tiny")).settings.layers == 2


@pytest.mark.parametrize("architecture", sorted(FAMILIES))
def test_every_setting_is_needed_or_has_a_default(architecture: str) -> None:
    for key, _ in settings_pairs(architecture, dataclasses.replace(shape(architecture), window=20)):
        try:
            build(from_bytes(file(architecture, {key: None}), "tiny"))
        except Error as problem:
            assert isinstance(problem, ModelFileError | UnsupportedError), key
            assert key in str(problem) or "tensor" in str(problem) or "do not fit" in str(problem), (key, str(problem))


@pytest.mark.parametrize("architecture", sorted(FAMILIES))
def test_every_tensor_is_needed(architecture: str) -> None:
    optional = ("output.weight", ".bias", "attn_q_norm.weight", "attn_k_norm.weight")
    for tensor in random_weights(architecture, shape(architecture), ("F32",)).tensors:
        if not tensor.name.endswith(optional):
            with pytest.raises(ModelFileError, match=f"no tensor `{tensor.name}`"):
                build(from_bytes(file(architecture, drop=tensor.name), "tiny"))


@pytest.mark.parametrize(
    ("architecture", "change", "what"),
    [
        ("llama", {"llama.attention.head_count": number(U32, 0)}, "`llama.attention.head_count` is 0"),
        ("llama", {"llama.attention.head_count_kv": number(U32, 3)}, "4 heads with 3 for keys, 16 elements of 16 rotated, do not fit"),
        ("llama", {f"llama.attention.{side}_length": number(U32, 10) for side in ("key", "value")}, "has the shape"),
        (
            "llama",
            {f"llama.attention.{side}_length": number(U32, 15) for side in ("key", "value")},
            "15 elements of 15 rotated, do not fit",
        ),
        ("llama", {"llama.rope.dimension_count": number(U32, 18)}, "`llama.rope.dimension_count` is 18, outside of 2..16"),
        ("llama", {"llama.rope.scaling.type": text("yarn")}, "the metadata has no `llama.rope.scaling.factor`"),
        ("llama", {"llama.block_count": number(U32, 1 << 30)}, "`llama.block_count` is 1073741824"),
        ("llama", {"llama.block_count": number(U32, 3)}, "there is no tensor `blk.2"),
        ("llama", {"llama.embedding_length": number(U32, 128)}, "has the shape"),
        ("llama", {"llama.context_length": text("long")}, "`llama.context_length` is not an integer"),
        ("llama", {"llama.rope.freq_base": number(F32, float("nan"))}, "`llama.rope.freq_base` is not a finite number"),
        ("llama", {"llama.rope.freq_base": number(F32, -1.0)}, "`llama.rope.freq_base` is -1.0, where a number above 0 is expected"),
        ("llama", {"llama.rope.scaling.type": text("longrope")}, "extended by `longrope` is not supported"),
        ("llama", {"llama.rope.scaling.yarn_beta_fast": number(F32, 16.0)}, "`llama.rope.scaling.yarn_beta_fast` is for another extension"),
        ("gemma3", {"gemma3.rope.scaling.type": text("linear"), "gemma3.rope.scaling.factor": number(F32, 0.0)}, "scaling.factor` is 0.0"),
        ("gemma2", {"gemma2.attn_logit_softcapping": number(F32, -1.0)}, "softcapping` is -1.0"),
        ("phi3", {"phi3.feed_forward_length": number(U32, 95)}, "where 190 rows are expected"),
        ("falcon", {}, "models of the architecture `falcon` are not supported"),
    ],
)
def test_settings_that_do_not_fit(architecture: str, change: dict[str, bytes | None], what: str) -> None:
    with pytest.raises((ModelFileError, UnsupportedError)) as found:
        build(from_bytes(file(architecture, change), "tiny"))
    assert what in str(found.value)


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.1.attn_k.weight", "blk.0.ffn_norm.weight", "output_norm.weight"])
def test_tensors_of_another_shape(name: str) -> None:
    with pytest.raises(ModelFileError, match=f"tensor `{name}` has the shape"):
        build(from_bytes(file(replace=f32(name, 5, 7)), "tiny"))
