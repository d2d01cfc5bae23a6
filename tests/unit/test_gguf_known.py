"""Keys and tensors of model files: each is used, known to change nothing, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from gguf_files import BOOL, F32, U32, Tensor, array, number, text, write
from pliant import Error, ModelFileError, UnsupportedError
from pliant.frontends.gguf.reader import GgufFile, from_bytes
from pliant.llm.models import FAMILIES, build
from pliant.llm.models.known import NEUTRAL, SILENT, USED
from reference_decoder import logits
from tiny_models import EXPERTS, Shape, random_weights, settings_pairs, tokenizer_pairs

SHAPES = {
    "qwen3moe": Shape(experts=4, used=2),
    "gpt-oss": Shape(experts=4, used=2, window=20),
    "gemma2": Shape(window=20),
    "gemma3": Shape(window=20, layers=6, stretch=8.0),
    "phi3": Shape(window=40),
}


def file_bytes(architecture: str, pairs: dict[str, bytes] | None = None, tensors: list[Tensor] | None = None, leave: str = "") -> bytes:
    """A tiny model with other pairs (in place of those of the same key) and more tensors."""
    s = SHAPES.get(architecture, Shape())
    said = dict([*settings_pairs(architecture, s), *tokenizer_pairs()]) | (pairs or {})
    return write([(k, v) for k, v in said.items() if k != leave], [*random_weights(architecture, s, ("F32",)).tensors, *(tensors or [])])


def tiny(architecture: str, *more: Any, **named: Any) -> GgufFile:
    return from_bytes(file_bytes(architecture, *more, **named), "tiny.gguf")


def plain(name: str, *shape: int) -> Tensor:
    return Tensor(name, shape, 0, np.ones(shape, np.float32).tobytes())


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize(
    "name", ["blk.0.attn_sub_norm.weight", "output.bias", "blk.0.ffn_gate_inp_shexp.weight", "blk.7.attn_q.weight", "v.blk.0.x"]
)
def test_tensors_that_no_part_of_the_model_reads_are_refused_by_name(architecture: str, name: str) -> None:
    with pytest.raises(UnsupportedError) as found:
        build(tiny(architecture, tensors=[plain(name, 64)]))
    assert f"tensor `{name}` is not part of it" in str(found.value)
    assert "tiny.gguf" in str(found.value)


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attention.causal", number(BOOL, False)),
        ("attention.causal", number(U32, 1)),
        ("expert_shared_count", number(U32, 1)),
        ("expert_weights_scale", number(F32, 2.5)),
        ("expert_gating_func", number(U32, 2)),
        ("logit_scale", number(F32, 0.0625)),
        ("residual_scale", number(F32, 0.5)),
        ("embedding_scale", number(F32, 12.0)),
        ("attention.max_alibi_bias", number(F32, 8.0)),
        ("attention.clamp_kqv", number(F32, 8.0)),
        ("rope.scale_linear", number(F32, 2.0)),
        ("use_parallel_residual", number(BOOL, True)),
        ("attention.value_length", number(U32, 32)),
        ("rope.dimension_sections", array(U32, [8, 8])),
        ("tensor_data_layout", text("jploski")),
        ("a_key_of_tomorrow", number(U32, 0)),
    ],
)
def test_keys_that_make_it_another_model_are_refused_by_name(architecture: str, key: str, value: bytes) -> None:
    with pytest.raises(UnsupportedError) as found:
        build(tiny(architecture, {f"{architecture}.{key}": value}))
    assert f"`{architecture}.{key}`" in str(found.value)


@pytest.mark.parametrize(
    ("architecture", "key", "value"),
    [
        *((a, "attention.sliding_window", number(U32, 100)) for a in ("qwen2", "qwen3")),
        *((a, "attn_logit_softcapping", number(F32, 50.0)) for a in ("llama", "qwen2", "phi3")),
        *((a, "final_logit_softcapping", number(F32, 30.0)) for a in ("llama", "qwen3", "phi3")),
        *((a, "rope.freq_base_swa", number(F32, 1e4)) for a in ("llama", "gemma2", "phi3")),
        *((a, "rope.scaling.attn_factor", number(F32, 1.2)) for a in ("llama", "qwen2", "gemma3")),
        *((a, "expert_count", number(U32, 8)) for a in FAMILIES if a not in EXPERTS),
        *((a, "expert_used_count", number(U32, 2)) for a in FAMILIES if a not in EXPERTS),
    ],
)
def test_keys_of_one_family_are_refused_where_another_ignores_them(architecture: str, key: str, value: bytes) -> None:
    with pytest.raises(UnsupportedError, match=f"`{architecture}.{key}`"):
        build(tiny(architecture, {f"{architecture}.{key}": value}))


@pytest.mark.parametrize("architecture", FAMILIES)
def test_keys_that_change_nothing_pass(architecture: str) -> None:
    kinds = {bool: lambda v: number(BOOL, v), int: lambda v: number(U32, v), float: lambda v: number(F32, v), str: text}
    said = {f"{architecture}.{k}": kinds[type(v)](v) for k, v in NEUTRAL.items() if k not in USED[architecture]}
    said |= {f"{architecture}.{k}": number(U32, 261) for k in SILENT - USED[architecture]}
    said |= {"general.file_type": number(U32, 0), "quantize.imatrix.chunks_count": number(U32, 3), "other.expert_count": number(U32, 8)}
    build(tiny(architecture, said))


def test_tensors_of_experts_are_refused_where_there_are_none() -> None:
    with pytest.raises(UnsupportedError, match=r"tensor `blk\.0\.ffn_gate_inp\.weight` is not part of it"):
        build(tiny("llama", tensors=[plain("blk.0.ffn_gate_inp.weight", 4, 64)]))


@pytest.mark.parametrize(
    ("key", "value"), [("expert_used_count", 5), ("expert_count", 0), ("expert_count", 3), ("expert_feed_forward_length", 90)]
)
def test_experts_that_do_not_fit_are_refused(key: str, value: int) -> None:
    with pytest.raises(ModelFileError, match=r"expert|ffn_gate"):
        build(tiny("qwen3moe", {f"qwen3moe.{key}": number(U32, value)}))


def test_experts_of_rows_that_are_no_whole_packs_are_refused() -> None:
    s = Shape(experts=4, used=2, ffn=40)
    file = write([*settings_pairs("qwen3moe", s), *tokenizer_pairs()], random_weights("qwen3moe", s, ("F32",)).tensors)
    with pytest.raises(UnsupportedError, match="experts of 40 rows are not supported"):
        build(from_bytes(file, "tiny.gguf"))


def test_a_window_that_is_no_shorter_than_the_context_changes_nothing() -> None:
    build(tiny("qwen2", {"qwen2.attention.sliding_window": number(U32, 512)}))
    with pytest.raises(UnsupportedError, match="sliding_window"):
        build(tiny("qwen2", {"qwen2.attention.sliding_window": number(U32, 511)}))
    assert build(tiny("llama", {"llama.attention.sliding_window": number(U32, 512)})).kernels.window == 0
    assert build(tiny("llama", {"llama.attention.sliding_window": number(U32, 511)})).kernels.window == 511


def test_yarn_of_one_frequency_is_refused() -> None:
    numbers = {"factor": 4.0, "original_context_length": 64}
    yarn = {f"qwen3.rope.scaling.{k}": number(F32 if isinstance(v, float) else U32, v) for k, v in numbers.items()}
    with pytest.raises(ModelFileError, match="the base of the rotation is 1"):
        build(tiny("qwen3", {**yarn, "qwen3.rope.scaling.type": text("yarn"), "qwen3.rope.freq_base": number(F32, 1.0)}))


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_key_that_is_called_used_is_looked_at(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    longer = [plain("rope_factors_short.weight", 8), plain("rope_factors_long.weight", 8)] if architecture == "phi3" else []
    more = {"phi3.rope.scaling.original_context_length": number(U32, 256)} if architecture == "phi3" else {}
    asked: set[str] = set()
    find = GgufFile._find
    monkeypatch.setattr(GgufFile, "_find", lambda self, key, *default: asked.add(key) or find(self, key, *default))
    build(tiny(architecture, more, longer))
    conditional = {f"{architecture}.rope.scaling.factor"} if architecture == "phi3" else set()  # with two sets of factors there is none
    assert {f"{architecture}.{k}" for k in USED[architecture]} - conditional <= asked


@pytest.mark.parametrize("architecture", FAMILIES)
def test_models_as_converters_write_them_are_built(architecture: str) -> None:
    said = {"vocab_size": number(U32, 261), "rope.dimension_count": number(U32, 16)}
    model = build(tiny(architecture, {f"{architecture}.{k}": v for k, v in said.items()}))
    assert model.settings.vocab_size == 261


def test_early_files_have_tensors_of_frequencies_that_follow_from_the_settings() -> None:
    build(tiny("llama", tensors=[plain("blk.1.attn_rot_embd.weight", 8)]))
    with pytest.raises(UnsupportedError, match="attn_rot_embd"):
        build(tiny("qwen2", tensors=[plain("blk.1.attn_rot_embd.weight", 8)]))


def test_the_scale_of_scores_is_that_of_the_file() -> None:
    """Scores times a factor are those of queries times the factor."""
    s, ids = Shape(), list(range(30, 60))
    values = random_weights("llama", s, ("F32",)).values
    stronger = {k: v * 3.0 if ".attn_q." in k else v for k, v in values.items()}
    expected = logits(stronger, s, "llama", ids)
    file = tiny("llama", {"llama.attention.scale": number(F32, 3.0 * s.size**-0.5)})
    from pliant.llm.engine import Engine

    engine = Engine(file, cache="f32")
    found = engine.feed_all(engine.cache.open(ids), ids)
    assert np.abs(found - expected).max() < 1e-3 * expected.std()
    assert np.abs(found - logits(values, s, "llama", ids)).max() > 0.1 * expected.std()


@pytest.mark.parametrize("architecture", ["gemma2", "gemma3", "phi3", "qwen3"])
def test_every_family_takes_the_scale_of_the_file(architecture: str) -> None:
    model = build(tiny(architecture, {f"{architecture}.attention.scale": number(F32, 0.5)}))
    assert model.kernels.scale == 0.5
    usual = build(tiny(architecture, {f"{architecture}.attention.scale": number(F32, 0.0)}))
    assert usual.kernels.scale == 0.25
    with pytest.raises(ModelFileError, match=r"attention\.scale"):
        build(tiny(architecture, {f"{architecture}.attention.scale": number(F32, -1.0)}))


def test_a_factor_alone_stretches_positions_as_a_linear_one_does() -> None:
    plainly, alone, named, none = (
        build(tiny("llama", said)).frequencies
        for said in (
            {},
            {"llama.rope.scaling.factor": number(F32, 4.0)},
            {"llama.rope.scaling.factor": number(F32, 4.0), "llama.rope.scaling.type": text("linear")},
            {"llama.rope.scaling.factor": number(F32, 4.0), "llama.rope.scaling.type": text("none")},
        )
    )
    expected = 10000.0 ** -(np.arange(0, 16, 2) / 16)
    np.testing.assert_allclose(plainly, expected, rtol=1e-6)
    np.testing.assert_allclose(alone, expected / 4, rtol=1e-6)
    np.testing.assert_array_equal(alone, named)
    np.testing.assert_array_equal(plainly, none)


def test_gemma3_takes_the_base_of_windowed_layers_from_the_file() -> None:
    for key, base in (("gemma3.rope.freq_base_swa", 5000.0), ("gemma3.other", 10000.0)):
        model = build(tiny("gemma3", {key: number(F32, base)} if "swa" in key else {}))
        np.testing.assert_allclose(model.local, base ** -(np.arange(0, 16, 2) / 16), rtol=1e-6)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, [True] * 5 + [False]),
        (number(U32, 2), [True, False] * 3),
        (number(U32, 1), [False] * 6),
        (array(BOOL, [False, True, True, False, True, True]), [False, True, True, False, True, True]),
    ],
)
def test_which_layers_see_a_window_is_what_the_file_says(said: bytes | None, expected: list[bool]) -> None:
    model = build(tiny("gemma3", {} if said is None else {"gemma3.attention.sliding_window_pattern": said}))
    assert model.windowed == expected
    assert [layer.attention.kernels.window == 20 for layer in model.layer] == expected


@pytest.mark.parametrize("said", [array(BOOL, [True]), number(U32, 0), text("all")])
def test_a_pattern_of_windows_that_makes_no_sense_is_refused(said: bytes) -> None:
    with pytest.raises(ModelFileError, match="sliding_window_pattern"):
        build(tiny("gemma3", {"gemma3.attention.sliding_window_pattern": said}))


def test_a_head_and_biases_of_another_shape_are_refused() -> None:
    with pytest.raises(ModelFileError, match=r"`output\.weight` has the shape"):
        build(tiny("llama", tensors=[plain("output.weight", 262, 64)]))
    with pytest.raises(ModelFileError, match=r"`blk\.0\.attn_output\.bias` has the shape"):
        build(tiny("llama", tensors=[plain("blk.0.attn_output.bias", 63)]))


def test_models_are_refused_before_they_are_compiled(tmp_path: Any) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(file_bytes("llama", {"llama.attention.causal": number(BOOL, False)}))
    with pytest.raises(Error, match=r"attention\.causal"):
        pliant.LLM(path)
