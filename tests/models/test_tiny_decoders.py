"""Whole decoders with tiny random weights, written to GGUF: against float64 of the same weights, and against themselves alone, in a batch,
in chunks, on more threads; the float64 evaluation against transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pliant.llm.engine import Part
from pliant.llm.lm import LLM
from pliant.quantization.formats import FORMATS
from reference_decoder import logits
from tiny_models import Shape, random_weights, tiny_llm

TYPES = ("F32", "F16", "BF16", *(f.name for f in FORMATS.values() if f.codes is not None))  # no more than there are matrices
WIDE = Shape(width=256, heads=8, kv_heads=4, size=32, ffn=256)  # some formats have blocks of 256
GEMMA2 = Shape(window=20, base=5000.0)
GEMMA3 = Shape(window=20, base=50000.0, stretch=8.0, layers=6)
PHI3 = Shape(heads=2, kv_heads=1, size=96, window=40)
IDS = np.random.default_rng(5).integers(0, 256, 150).tolist()
EXACT = {"cache": "f32"}


def error(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """How far off, for the spread of the logits."""
    return float(np.sqrt(((found - expected) ** 2).mean()) / expected.std())


@pytest.mark.parametrize(
    ("architecture", "kinds", "shape", "options", "bound"),
    [
        ("llama", ("F32",), Shape(), EXACT, 1e-5),
        ("qwen2", ("F16", "BF16", "F32"), Shape(heads=4, kv_heads=4), {}, 2e-3),  # keys and values in f16
        ("qwen3", ("F32", "Q8_0"), Shape(heads=6, kv_heads=2, size=32), {}, 2e-2),  # activations in 8 bits
        ("gemma2", ("F32",), GEMMA2, EXACT, 2e-5),
        ("gemma3", ("F32",), GEMMA3, EXACT, 2e-5),
        ("phi3", ("F32",), PHI3, EXACT, 1e-5),
        ("llama", TYPES[1:], WIDE, {}, 3e-2),
        ("qwen2", TYPES, WIDE, {}, 3e-2),
    ],
    ids=["llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "llama in all types", "qwen2 in all types"],
)
def test_logits_are_those_of_float64(
    architecture: str, kinds: tuple[str, ...], shape: Shape, options: dict[str, Any], bound: float
) -> None:
    lm = tiny_llm(architecture, kinds, shape, **options)
    expected = logits(random_weights(architecture, shape, kinds).values, shape, architecture, IDS)
    assert error(lm.logits(IDS), expected) < bound


@pytest.fixture(scope="module")
def lm() -> LLM:
    return tiny_llm()


def fresh(lm: LLM, ids: list[int], chunk: int = 512) -> NDArray[Any]:
    """The logits after the last token, with nothing in the cache before."""
    sequence = lm.engine.cache.open(())
    try:
        return lm.engine.feed(sequence, ids, chunk)
    finally:
        lm.engine.cache.release(sequence)


def test_chunks_do_not_matter(lm: LLM) -> None:
    expected = fresh(lm, IDS)
    for chunk in (1, 7, 64, 149):
        assert np.array_equal(fresh(lm, IDS, chunk), expected), chunk
    assert np.array_equal(lm.logits(IDS)[-1], expected)


def test_a_row_alone_is_the_row_in_a_batch(lm: LLM) -> None:
    engine = lm.engine
    rows = [IDS[:1], IDS[3:90], IDS[50:55], IDS[:128]]
    alone = [fresh(lm, row) for row in rows]
    together = [engine.cache.open(()) for _ in rows]
    found = engine.step([Part(s, row) for s, row in zip(together, rows, strict=True)])
    assert np.array_equal(found, alone)
    more = [fresh(lm, [*row, 9]) for row in rows]
    assert np.array_equal(engine.step([Part(s, [9]) for s in together]), more)
    for s in together:
        engine.cache.release(s)


def test_a_known_prefix_changes_nothing(lm: LLM) -> None:
    engine = lm.engine
    first = engine.cache.open(())
    engine.feed(first, IDS)
    engine.cache.close(first)
    other = [*IDS[:100], 1, 2, 3]
    again = engine.cache.open(other)
    assert again.length == again.reused == 100
    assert np.array_equal(engine.feed(again, other[100:]), fresh(lm, other))
    engine.cache.close(again)
    copied = engine.cache.open([*IDS[:20], 5])  # most of the sequence would be lost: its beginning is copied
    assert copied is not again and copied.length == 20
    assert np.array_equal(engine.feed(copied, [5]), fresh(lm, [*IDS[:20], 5]))
    engine.cache.release(copied)


def test_threads_do_not_matter(lm: LLM) -> None:
    one, two = (tiny_llm(threads=n) for n in (1, 2))
    assert np.array_equal(one.logits(IDS), two.logits(IDS))


TRANSFORMERS = {
    "llama": ("LlamaForCausalLM", Shape(heads=8, kv_heads=2, size=32)),
    "qwen2": ("Qwen2ForCausalLM", Shape(heads=4, kv_heads=2, size=16)),
    "qwen3": ("Qwen3ForCausalLM", Shape(heads=8, kv_heads=2, size=32)),
    "gemma2": ("Gemma2ForCausalLM", GEMMA2),
    "gemma3": ("Gemma3ForCausalLM", GEMMA3),
    "phi3": ("Phi3ForCausalLM", Shape(window=40)),
}
NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def their_name(architecture: str, name: str) -> str:
    """A tensor's name in transformers."""
    names = NAMES
    if architecture.startswith("gemma"):
        names = {**NAMES, "ffn_norm": "pre_feedforward_layernorm"}
    if architecture == "phi3":
        names = {**NAMES, "ffn_up": "mlp.gate_up_proj"}
    if name.startswith("blk."):
        _, number, part, kind = name.split(".")
        return f"model.layers.{number}.{names[part]}.{kind}"
    return {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}[name.split(".")[0]] + ".weight"


def theirs(architecture: str, name: str, value: NDArray[Any], s: Shape) -> NDArray[Any]:
    """A tensor's values in transformers: queries and keys of a llama file have pairs of neighbors where theirs has halves, and the
    weights of a gemma file's norms have 1 added."""
    heads = {"attn_q": s.heads, "attn_k": s.kv_heads}.get(name.split(".")[-2])
    if architecture == "llama" and heads:
        return value.reshape(heads, s.size // 2, 2, -1).swapaxes(1, 2).reshape(value.shape)
    return value - 1.0 if architecture.startswith("gemma") and "norm" in name else value


@pytest.mark.parametrize("architecture", list(TRANSFORMERS))
def test_the_reference_is_that_of_transformers(architecture: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    name, s = TRANSFORMERS[architecture]
    values = random_weights(architecture, s, ("F32",)).values
    kind = getattr(transformers, name)
    own: dict[str, Any] = {"rope_parameters": {"rope_type": "default", "rope_theta": s.base}}
    if architecture == "gemma2":
        own |= {"query_pre_attn_scalar": s.size, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
    if architecture == "gemma3":
        own["query_pre_attn_scalar"] = s.size
        own["rope_parameters"] = {
            "full_attention": {"rope_type": "linear", "factor": s.stretch, "rope_theta": s.base},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        }
    config = kind.config_class(
        vocab_size=values["token_embd.weight"].shape[0],
        hidden_size=s.width,
        intermediate_size=s.ffn,
        num_hidden_layers=s.layers,
        num_attention_heads=s.heads,
        num_key_value_heads=s.kv_heads,
        head_dim=s.size,
        rms_norm_eps=s.eps,
        sliding_window=s.window or None,
        tie_word_embeddings="output.weight" not in values,
        attn_implementation="eager",
        pad_token_id=0,
        **own,
    )
    model = kind(config).double().eval()
    state = {their_name(architecture, n): torch.from_numpy(theirs(architecture, n, v, s)) for n, v in values.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    with torch.no_grad():
        expected = model(torch.tensor([IDS])).logits[0].numpy()
    assert np.allclose(logits(values, s, architecture, IDS), expected, rtol=1e-4, atol=1e-5)  # they compute norms and angles in f32
