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
from tiny_checkpoints import their_name, theirs
from tiny_models import ATTN_FACTOR, Shape, random_weights, tiny_llm

TYPES = ("F32", "F16", "BF16", *(f.name for f in FORMATS.values() if f.codes is not None))  # no more than there are matrices
WIDE = Shape(width=256, heads=8, kv_heads=4, size=32, ffn=256)  # some formats have blocks of 256
GEMMA2 = Shape(window=20, base=5000.0)
GEMMA3 = Shape(window=20, base=50000.0, stretch=8.0, layers=6)
PHI3 = Shape(heads=2, kv_heads=1, size=96, window=40)
PHI4 = Shape(width=128, size=32, rotated=24, factors=True, trained=256)  # partial rotation, a factor for each frequency
YARN = Shape(heads=4, kv_heads=2, size=32, yarn=4.0, base=1e6, trained=300)
LLAMA3 = Shape(size=20, factors=True, trained=100)  # heads that are no multiple of a vector
QWEN_EXPERTS = Shape(heads=4, kv_heads=2, size=32, experts=8, used=3)
GPT_OSS = Shape(heads=8, kv_heads=2, size=32, experts=6, used=2, window=20, yarn=8.0, trained=500, base=150000.0)
PARTS = Shape(size=34, rotated=14, yarn=8.0, trained=400)  # of interleaved pairs
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
        ("phi3", ("F32",), PHI4, EXACT, 1e-5),
        ("qwen3", ("F32",), YARN, EXACT, 1e-5),
        ("llama", ("F32",), LLAMA3, EXACT, 1e-5),
        ("llama", ("F32",), PARTS, EXACT, 1e-5),
        ("qwen3moe", ("F32", "F16", "BF16"), QWEN_EXPERTS, EXACT, 1e-5),
        ("gpt-oss", ("F32",), GPT_OSS, EXACT, 1e-5),
        ("llama", TYPES[1:], WIDE, {}, 3e-2),
        ("qwen2", TYPES, WIDE, {}, 3e-2),
    ],
    ids=[
        *("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "phi4", "yarn", "llama3", "partial", "qwen3moe", "gpt-oss"),
        *("llama in all types", "qwen2 in all types"),
    ],
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


@pytest.mark.parametrize(
    ("architecture", "kinds", "shape"), [("gpt-oss", ("Q8_0", "MXFP4"), GPT_OSS), ("qwen3moe", ("Q4_0",), QWEN_EXPERTS)]
)
def test_experts_of_a_row_do_not_depend_on_the_batch(architecture: str, kinds: tuple[str, ...], shape: Shape) -> None:
    lm = tiny_llm(architecture, kinds, shape)
    expected = logits(random_weights(architecture, shape, kinds).values, shape, architecture, IDS)
    found = lm.logits(IDS)
    off = np.sqrt(((found - expected) ** 2).mean(axis=1)) / expected.std()
    assert np.median(off) < 5e-2, "activations in 8 bits; a token whose router was nearly undecided may take another expert"
    for chunk in (1, 7):
        assert np.array_equal(fresh(lm, IDS, chunk), found[-1]), chunk
    rows = [IDS[:1], IDS[3:90], IDS[50:55]]
    alone = [fresh(lm, row) for row in rows]
    together = [lm.engine.cache.open(()) for _ in rows]
    assert np.array_equal(lm.engine.step([Part(s, row) for s, row in zip(together, rows, strict=True)]), alone)
    for s in together:
        lm.engine.cache.release(s)


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
    "phi4": ("Phi3ForCausalLM", PHI4),
    "yarn": ("Qwen3ForCausalLM", YARN),
    "llama3": ("LlamaForCausalLM", LLAMA3),
    "qwen3moe": ("Qwen3MoeForCausalLM", QWEN_EXPERTS),
    "gpt-oss": ("GptOssForCausalLM", GPT_OSS),
}
SAME = {"phi4": "phi3", "yarn": "qwen3", "llama3": "llama"}  # architectures that these are files of


def their_experts(architecture: str, values: dict[str, Any], s: Shape) -> dict[str, NDArray[Any]]:
    """The tensors of experts in transformers: gate and up are one, in gpt-oss element by element, and its matrices are transposed."""
    state = {}
    for number in range(s.layers if s.experts else 0):
        ours, their = f"blk.{number}.ffn_", f"model.layers.{number}.mlp.experts."
        for part in ("weight", "bias") if architecture == "gpt-oss" else ("weight",):
            gate, up, down = (values[f"{ours}{name}_exps.{part}"] for name in ("gate", "up", "down"))
            end = "_bias" if part == "bias" else ""
            if architecture == "gpt-oss":
                both = np.stack([gate, up], axis=2).reshape(s.experts, 2 * s.ffn, *gate.shape[2:])
                both, down = (a.swapaxes(1, -1) if part == "weight" else a for a in (both, down))
            else:
                both = np.concatenate([gate, up], axis=1)
            state |= {f"{their}gate_up_proj{end}": np.ascontiguousarray(both), f"{their}down_proj{end}": np.ascontiguousarray(down)}
    return state


def rotation_of(model: str, s: Shape, values: dict[str, Any]) -> dict[str, Any]:
    """The rotation in the words of transformers."""
    base: dict[str, Any] = {"rope_theta": s.base, "partial_rotary_factor": s.turning / s.size}
    trained = {"original_max_position_embeddings": s.trained}
    if model == "llama3":
        return base | trained | {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if model == "phi4":
        short, long = (values[f"rope_factors_{name}.weight"].tolist() for name in ("short", "long"))
        return base | trained | {"rope_type": "longrope", "short_factor": short, "long_factor": long, "attention_factor": ATTN_FACTOR}
    whole = {"truncate": model != "gpt-oss"}
    return base | trained | whole | {"rope_type": "yarn", "factor": s.yarn} if s.yarn else base | {"rope_type": "default"}


@pytest.mark.parametrize("model", list(TRANSFORMERS))
def test_the_reference_is_that_of_transformers(model: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    name, s = TRANSFORMERS[model]
    architecture = SAME.get(model, model)
    values = random_weights(architecture, s, ("F32",)).values
    kind = getattr(transformers, name)
    own: dict[str, Any] = {"rope_parameters": rotation_of(model, s, values)}
    if s.experts:
        own |= {"num_experts": s.experts, "num_experts_per_tok": s.used, "moe_intermediate_size": s.ffn, "norm_topk_prob": True}
    if architecture == "gpt-oss":
        own |= {"num_local_experts": own.pop("num_experts")}
    if s.factors:
        own["max_position_embeddings"] = s.context
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
        experts_implementation="eager",  # the other one has no f64
        pad_token_id=0,
        **own,
    )
    net = kind(config).double().eval()
    plain = {n: v for n, v in values.items() if n[:5] != "rope_" and "exps" not in n}
    state = {their_name(architecture, n): torch.from_numpy(theirs(architecture, n, v, s)) for n, v in plain.items()}
    state |= {n: torch.from_numpy(v) for n, v in their_experts(architecture, values, s).items()}
    missing, unexpected = net.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    with torch.no_grad():
        expected = net(torch.tensor([IDS])).logits[0].numpy()
    # They compute norms and angles in f32: an angle of 150 is off by up to 8e-6, and so are logits, by a few times that.
    assert np.abs(logits(values, s, architecture, IDS) - expected).max() < 1e-4 * expected.std()
