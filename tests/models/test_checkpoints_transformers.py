"""Checkpoint folders that transformers itself writes, of tiny random models: logits, the most likely tokens, and the tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant.frontends.checkpoint import open_checkpoint
from pliant.frontends.safetensors import load_safetensors
from tiny_checkpoints import GPT_OSS, OF_GPT_OSS, write_checkpoint
from tiny_models import TEMPLATE, vocabulary

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "eos_token_id": [7, 9],
    "pad_token_id": 0,
    "initializer_range": 0.3,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e5}
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5], "long_factor": [4.0] * 6, "partial_rotary_factor": 0.75}
GEMMA3 = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e4},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
MODELS: dict[str, dict[str, Any]] = {
    "Llama": {"rope_parameters": LLAMA3 | {"rope_theta": 5e4}, "attention_bias": True, "mlp_bias": True},
    "Mistral": {"sliding_window": 20, "tie_word_embeddings": True},
    "Qwen2": {"rope_parameters": LINEAR},
    "Qwen3": {"rope_parameters": YARN},
    "Qwen3Moe": {"num_local_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "norm_topk_prob": True},
    "Gemma2": {"sliding_window": 20, "query_pre_attn_scalar": 24},
    "Gemma3": {"sliding_window": 20, "query_pre_attn_scalar": 16, "num_hidden_layers": 6, "rope_parameters": GEMMA3},
    "Phi3": {"rope_parameters": LONG | {"rope_theta": 1e4}, "original_max_position_embeddings": 128, "sliding_window": 30},
}
IDS = np.random.default_rng(2).integers(10, 300, 60).tolist()


def model_of(name: str) -> Any:
    """A tiny random decoder of transformers, whose biases and norms are random too."""
    kind = getattr(transformers, f"{name}ForCausalLM")
    torch.manual_seed(3)
    net = kind(kind.config_class(**(SIZES | MODELS[name]))).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.ndim == 1:
                parameter += 0.2 * torch.randn_like(parameter)
    return net


@pytest.mark.parametrize("name", list(MODELS))
def test_logits_and_tokens_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    net = model_of(name)
    net.save_pretrained(tmp_path, max_shard_size="60KB")
    tokenizer_of_bytes().save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors.index.json").exists()
    lm = pliant.LLM(tmp_path, cache="f32")
    with torch.no_grad():
        expected = net(torch.tensor([IDS])).logits[0].double().numpy()
    assert np.abs(lm.logits(IDS) - expected).max() < 1e-4 * np.abs(expected).max()
    tokens = list(IDS[:20])
    for token in lm.generate(tokens, max_tokens=8, temperature=0).tokens:
        with torch.no_grad():
            row = net(torch.tensor([tokens])).logits[0, -1]
        first, second = row.topk(2)[0].tolist()
        assert token == int(row.argmax()) or first - second < 1e-3
        tokens.append(token)
    assert {7, 9} <= lm.tokenizer.ends


def test_blocks_of_mxfp4_are_those_of_transformers(tmp_path: Path) -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    write_checkpoint(tmp_path, "gpt-oss", GPT_OSS, OF_GPT_OSS)
    file, stored = open_checkpoint(tmp_path), load_safetensors(tmp_path / "model.safetensors")
    for name, parts in (("gate_up", ("gate", "up")), ("down", ("down",))):
        blocks, scales = (torch.from_numpy(stored[f"model.layers.1.mlp.experts.{name}_proj_{k}"].copy()) for k in ("blocks", "scales"))
        expected = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).numpy().swapaxes(1, 2)  # [experts, rows, columns]
        for number, part in enumerate(parts):  # as their model takes gate and up: every second one
            found = file.tensors[f"blk.1.ffn_{part}_exps.weight"].dequantized()
            assert np.array_equal(found, expected[:, number :: len(parts)])


def tokenizer_of_bytes() -> Any:
    """A byte-level tokenizer of transformers with a chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    words = vocabulary()
    plain = {w: i for i, w in enumerate(words[:258])}
    own = Tokenizer(models.BPE(plain, [("t", "h"), ("th", "e")]))
    own.add_special_tokens([AddedToken(w, special=True) for w in words[258:]])
    own.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)])
    own.decoder = decoders.ByteLevel()
    names = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=own, chat_template=TEMPLATE, **names)


def test_prompts_are_those_of_transformers(tmp_path: Path) -> None:
    from pliant.llm.model_file import open_model, tokenizer_of
    from pliant.llm.prompt import Prompts

    theirs = tokenizer_of_bytes()
    transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SIZES)).save_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path)
    file = open_model(tmp_path)
    ours = tokenizer_of(file)
    for text in ("The weather in 2024, then.", "naïve 日本 🙂\n\n  x"):
        assert ours.encode(text) == theirs.encode(text) and ours.decode(ours.encode(text)) == text
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "the other"}]
    expected = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert Prompts(file, ours).encode(messages) == theirs.encode(expected, add_special_tokens=False)
