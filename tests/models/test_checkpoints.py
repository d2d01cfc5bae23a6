"""Checkpoint folders of transformers: the same program and weights as from a GGUF file of the same model; llama, whose rows lie in another
order there, against float64; folders that are broken or have another model."""

from __future__ import annotations

import json
import pickle
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from counts import count
from pliant import ModelFileError, UnsupportedError
from pliant.cli import main
from pliant.frontends.checkpoint import open_checkpoint
from pliant.frontends.checkpoint.known import NEUTRAL, SILENT
from pliant.frontends.gguf import open_gguf
from pliant.frontends.gguf.reader import from_bytes
from pliant.frontends.safetensors import load_safetensors
from pliant.llm.lm import LLM
from pliant.llm.model_checks import model_checks
from pliant.llm.model_file import tokenizer_of
from pliant.llm.models import build
from pliant.llm.prompt import Prompts
from pliant.llm.tokenizer import from_folder, from_gguf
from pliant.support.mapped import mapping_of
from reference_decoder import logits
from tiny_checkpoints import GPT_OSS, OF_GPT_OSS, safetensors, write_checkpoint
from tiny_models import TEMPLATE, Shape, tiny, tiny_file

GEMMA2 = Shape(window=20, base=5000.0)
GEMMA3 = Shape(window=20, base=50000.0, stretch=8.0, layers=6)
PHI3 = Shape(heads=2, kv_heads=1, size=96, window=40)
PHI4 = Shape(width=128, size=32, rotated=24, factors=True, trained=256)
YARN = Shape(size=32, yarn=4.0, base=1e6, trained=300)
LLAMA = Shape(size=20, factors=True, trained=100, window=25)
EXPERTS = Shape(heads=4, kv_heads=2, size=32, experts=8, used=3)
IDS = np.random.default_rng(5).integers(0, 256, 60).tolist()
HALVES = ("BF16", "F16", "F32")


@pytest.mark.parametrize(
    ("architecture", "shape"),
    [
        ("qwen2", Shape()),
        ("qwen3", YARN),
        ("gemma2", GEMMA2),
        ("gemma3", GEMMA3),
        ("phi3", PHI3),
        ("phi3", PHI4),
        ("qwen3moe", EXPERTS),
        ("gpt-oss", GPT_OSS),
    ],
    ids=["qwen2", "qwen3 with yarn", "gemma2", "gemma3", "phi3", "phi4", "experts", "gpt-oss"],
)
def test_the_program_is_that_of_the_gguf_file(tmp_path: Path, architecture: str, shape: Shape) -> None:
    kinds = OF_GPT_OSS if architecture == "gpt-oss" else HALVES
    write_checkpoint(tmp_path, architecture, shape, kinds)
    found = build(open_checkpoint(tmp_path), pliant.f32)
    expected = build(from_bytes(tiny(architecture, kinds, shape), "tiny"), pliant.f32)
    assert found.settings.context == (shape.trained if shape.factors else shape.context)
    ours, theirs = found.to_program(), expected.to_program()
    assert len(ours.constants) == len(theirs.constants) > 10
    for a, b in zip(ours.constants, theirs.constants, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert np.array_equal(a, b) if a.dtype.kind == "u" else np.allclose(a, b, rtol=1e-6, atol=1e-7)
    assert rounded(str(ours)) == rounded(str(theirs))


def rounded(text: str) -> str:
    """A program's text with numbers of 5 digits and without checksums: 1 is added to norms of gemma, which rounds."""
    return re.sub(r"\d+\.\d+", lambda m: f"{float(m[0]):.5g}", re.sub(r", crc32 \w+", "", text))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[LLM, dict[str, Any]]:
    """A Llama 3 with a window, in three types, whose tensors are in two parts and not aligned."""
    folder = tmp_path_factory.mktemp("llama")
    values = write_checkpoint(folder, "llama", LLAMA, HALVES, align=False)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mistral"}))
    split(folder)
    return LLM(folder, cache="f32"), values


def split(folder: Path) -> dict[str, str]:
    """Moves the tensors to two parts with an index; returns its table."""
    whole = folder / "model.safetensors"
    weights = load_safetensors(whole)
    kinds = {name: {"bf16": "BF16", "f16": "F16", "f32": "F32"}[stored.dtype.name] for name, stored in weights.stored.items()}
    table: dict[str, str] = {}
    for number in (1, 2):
        part = f"model-0000{number}-of-00002.safetensors"
        own = {name: (kinds[name], weights.raw(name).view(np.uint8)) for name in list(weights)[number - 1 :: 2]}
        header = {name: weights.stored[name].shape for name in own}
        (folder / part).write_bytes(safetensors(own, align=False, shapes=header))
        table |= dict.fromkeys(own, part)
    whole.unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": table}))
    return table


def test_logits_are_those_of_float64(llama: tuple[LLM, dict[str, Any]]) -> None:
    lm, values = llama
    expected = logits(values, LLAMA, "llama", IDS)
    found = lm.logits(IDS)
    assert float(np.sqrt(((found - expected) ** 2).mean()) / expected.std()) < 1e-5


def test_weights_are_views_of_the_files(llama: tuple[LLM, dict[str, Any]], qwen: Path) -> None:
    assert all(mapping_of(tensor.data) is not None for tensor in open_checkpoint(qwen).tensors.values())
    lm, _ = llama
    copied = [name for name, tensor in lm.file.tensors.items() if mapping_of(tensor.data) is None]
    assert "rope_freqs.weight" in copied  # the config gives it; others are not aligned in the file


def test_a_pickle_is_refused_in_plain_words(llama: tuple[LLM, dict[str, Any]]) -> None:
    with pytest.raises(UnsupportedError, match="was opened from a checkpoint folder, and pickles hold GGUF files"):
        pickle.dumps(llama[0])


def test_the_most_likely_tokens_are_written(llama: tuple[LLM, dict[str, Any]]) -> None:
    lm, values = llama
    tokens = list(IDS[:30])
    for token in lm.generate(tokens, max_tokens=8, temperature=0).tokens:
        row = logits(values, LLAMA, "llama", tokens)[-1]
        assert row.max() - row[token] < 1e-3 * row.std()
        tokens.append(token)
    assert len(tokens) == 38


def test_tokenizer_and_template_are_those_of_the_gguf_file(llama: tuple[LLM, dict[str, Any]]) -> None:
    lm, _ = llama
    file = open_gguf(tiny_file("llama"))
    same = from_gguf(file)
    for text in ("the weather, 2024!", "naïve 日本 \n\n<|im_end|>", ""):
        assert lm.tokenizer.encode(text) == same.encode(text)
    assert (lm.tokenizer.bos, lm.tokenizer.eos, lm.tokenizer.ends) == (same.bos, same.eos, same.ends)
    messages = [{"role": "user", "content": "the <|im_end|> of it"}]
    assert lm.prompts.encode(messages) == Prompts(file, same).encode(messages)


@pytest.fixture
def qwen(tmp_path: Path) -> Path:
    """A folder that a test may break."""
    write_checkpoint(tmp_path, "qwen2", Shape(layers=1), ("BF16",))
    return tmp_path


def changed(folder: Path, name: str = "config.json", **values: Any) -> None:
    """Sets values of a JSON file; None deletes a key."""
    file = folder / name
    found = (json.loads(file.read_text()) if file.exists() else {}) | values
    file.write_text(json.dumps({k: v for k, v in found.items() if v is not None}))


@pytest.mark.parametrize(
    ("values", "kind", "what"),
    [
        ({"model_type": "mamba"}, UnsupportedError, "models of the kind `mamba` are not supported"),
        ({"model_type": "bert"}, UnsupportedError, "help: pliant.Embedder makes vectors"),
        ({"model_type": None}, ModelFileError, "`model_type` is missing"),
        ({"quantization_config": {"quant_method": "gptq"}}, UnsupportedError, "quantization_config.*\n.*\nhelp: a GGUF file"),
        ({"residual_multiplier": 0.22}, UnsupportedError, "`residual_multiplier` is 0.22, and the result could be that of another model"),
        ({"use_sliding_window": True}, UnsupportedError, "`use_sliding_window` is True.*\n.*supported: false"),
        ({"layer_types": ["sliding_attention"]}, UnsupportedError, "`layer_types` with sliding windows"),
        ({"layer_types": ["full_attention"] * 2}, ModelFileError, "for each of 1 layers"),
        ({"hidden_act": "gelu"}, ModelFileError, "`hidden_act` is 'gelu', where `silu` is expected"),
        ({"hidden_size": 0}, ModelFileError, "`hidden_size` is 0, where an integer from 1 to"),
        ({"hidden_size": "64"}, ModelFileError, "`hidden_size` is '64'"),
        ({"num_hidden_layers": True}, ModelFileError, "`num_hidden_layers` is True"),
        ({"num_hidden_layers": 2}, ModelFileError, r"no tensor `model\.layers\.1\.input_layernorm\.weight`"),
        ({"num_key_value_heads": 3}, ModelFileError, "4 heads and 3 for keys do not fit"),
        ({"intermediate_size": 97}, ModelFileError, r"mlp\.gate_proj\.weight` has the shape \(96, 64\), and config.json says \(97, 64\)"),
        ({"rms_norm_eps": float("nan")}, ModelFileError, "`rms_norm_eps` is nan"),
        ({"rms_norm_eps": None}, ModelFileError, "`rms_norm_eps` is missing"),
        ({"rope_scaling": [1]}, ModelFileError, "`rope_scaling` is"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, UnsupportedError, "`rope_scaling`: a rotation of the kind `dynamic`"),
        ({"rope_scaling": {"type": "linear", "factor": -1}}, ModelFileError, "`factor` is -1"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "mscale": 0.7}}, UnsupportedError, "`mscale` is 0.7"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "truncate": False}}, UnsupportedError, "yarn with `truncate` False"),
        ({"partial_rotary_factor": 0.5}, UnsupportedError, "partial rotation"),
        ({"tie_word_embeddings": True}, UnsupportedError, "`lm_head.weight` is not part.*\n.*\nhelp: config.json says"),
    ],
)
def test_a_config_that_is_wrong_or_of_another_model_is_refused_by_name(
    qwen: Path, values: dict[str, Any], kind: type[Exception], what: str
) -> None:
    changed(qwen, **values)
    with pytest.raises(kind) as found:
        open_checkpoint(qwen)
    assert re.search(what, str(found.value)), found.value


WRONG: list[Any] = [0, -1, 1, 3, 0.5, 1e308, 5e-324, 10**30, 2**63, True, "x", "yarn", "linear", "longrope", None, [], {}, [1], {"a": 1}]
WRONG += [float("nan"), float("inf"), {"rope_type": "yarn", "factor": 1e300}, {"full_attention": {"rope_type": "yarn", "factor": 2}}]
SOMETIMES = ["sliding_window", "rope_parameters", "add_bos_token", "head_dim", "layer_types", "eos_token_id"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("architecture", "shape"),
    [("llama", LLAMA), ("qwen3", YARN), ("gemma3", Shape(window=20, stretch=8.0, layers=1)), ("phi3", PHI4)],
    ids=["llama", "qwen3", "gemma3", "phi3"],
)
def test_changed_files_are_read_or_refused(tmp_path: Path, architecture: str, shape: Shape) -> None:
    write_checkpoint(tmp_path, architecture, shape)
    chance, refused = random.Random(7), 0
    for name in ("config.json", "tokenizer_config.json", "tokenizer.json"):
        whole = (tmp_path / name).read_text()
        for _ in range(count(50, 5000)):
            found = inner = json.loads(whole)
            key = chance.choice([*found, *SOMETIMES])
            while isinstance(inner.get(key), dict) and inner[key] and chance.random() < 0.7:
                inner = inner[key]
                key = chance.choice(list(inner))
            inner[key] = chance.choice(WRONG)
            (tmp_path / name).write_text(json.dumps(found))
            try:
                file = open_checkpoint(tmp_path)
                tokenizer_of(file)
                build(file, pliant.f32)
            except (ModelFileError, UnsupportedError):
                refused += 1
        (tmp_path / name).write_text(whole)
    assert refused > 40


def test_keys_that_change_nothing_pass(qwen: Path) -> None:
    changed(qwen, **NEUTRAL, **dict.fromkeys(SILENT - {"model_type", "eos_token_id"}, "anything"))
    assert open_checkpoint(qwen).architecture == "qwen2"
    for key, value in NEUTRAL.items():
        changed(qwen, **{key: not value if isinstance(value, bool) else value + 1})
        with pytest.raises((UnsupportedError, ModelFileError), match=key if key != "attention_bias" else r"self_attn\.\w_proj\.bias"):
            open_checkpoint(qwen)
        changed(qwen, **{key: value})


def test_files_that_are_missing_or_no_json(qwen: Path) -> None:
    with pytest.raises(ModelFileError, match=r"config\.json` cannot be read"):
        open_checkpoint(qwen / "other")
    for text, what in (("{", "not JSON"), ("[" * 100_000, "not JSON"), ("[]", "not a JSON object"), ('{"a": 1, "a": 2}', "not JSON")):
        (qwen / "config.json").write_text(text)
        with pytest.raises(ModelFileError, match=what):
            open_checkpoint(qwen)
    with pytest.raises(ModelFileError, match="is a part of a checkpoint"):
        LLM(qwen / "model.safetensors")


def test_weights_that_are_pickled_are_not_opened(qwen: Path) -> None:
    (qwen / "model.safetensors").rename(qwen / "pytorch_model.bin")
    with pytest.raises(UnsupportedError, match=r"`pytorch_model\.bin` is not read: unpickling a file can run any program"):
        open_checkpoint(qwen)
    (qwen / "pytorch_model.bin").unlink()
    with pytest.raises(ModelFileError, match="has no weights"):
        open_checkpoint(qwen)


def test_an_index_is_not_trusted(qwen: Path) -> None:
    table = split(qwen)
    open_checkpoint(qwen)
    name, part = next(iter(table.items()))
    other = next(p for p in table.values() if p != part)
    for wrong, what in (
        ({}, "not a table"),
        (table | {name: 3}, "not a table"),
        (table | {name: "../" + part}, "is not the name of a safetensors file in the folder"),
        (table | {name: "weights.bin"}, "is not the name of a safetensors file"),
        (table | {name: "absent.safetensors"}, "part `absent.safetensors` of the weights is missing"),
        (table | {name: other}, f"tensor `{re.escape(name)}` is in"),
        ({n: p for n, p in table.items() if n != name}, f"tensor `{re.escape(name)}` is in"),
        (table | {"a": part}, "tensor `a` is in `None`"),
    ):
        (qwen / "model.safetensors.index.json").write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(ModelFileError, match=what):
            open_checkpoint(qwen)


def test_tensors_that_are_of_no_use_or_of_another_type(qwen: Path) -> None:
    whole = load_safetensors(qwen / "model.safetensors")
    kinds = {"bf16": "BF16", "f16": "F16", "f32": "F32"}
    own = {
        n: (kinds[s.dtype.name], whole.raw(n).copy().view(np.uint16 if s.dtype.name == "bf16" else np.float32))
        for n, s in whole.stored.items()
    }
    shapes = {n: s.shape for n, s in whole.stored.items()}

    def written(**more: Any) -> None:
        (qwen / "model.safetensors").write_bytes(safetensors(own | more, shapes=shapes))

    embedding = own["model.embed_tokens.weight"]
    written(**{"model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", np.ones(8, np.float32))})
    open_checkpoint(qwen)
    written(**{"model.layers.0.mlp.router.weight": ("F32", np.ones(8, np.float32))})
    with pytest.raises(UnsupportedError, match=r"`model\.layers\.0\.mlp\.router\.weight` is not part of the model"):
        open_checkpoint(qwen)
    written(**{"model.norm.weight": ("F64", np.ones(64))})
    with pytest.raises(UnsupportedError, match=r"`model\.norm\.weight` has the dtype f64"):
        open_checkpoint(qwen)
    written(**{"lm_head.weight": embedding})
    changed(qwen, tie_word_embeddings=True)
    assert "output.weight" not in open_checkpoint(qwen).tensors


def test_the_command_inspect_shows_a_folder(qwen: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(qwen)]) == 0
    shown = capsys.readouterr().out
    assert "architecture qwen2, 512 tokens of context, 1 layers" in shown and "261 tokens, bos '<|im_start|>'" in shown
    assert main(["inspect", str(qwen), "--show", "tensors"]) == 0
    assert "model.layers.0.self_attn.q_proj.bias: Tensor[F32, 64], 256 bytes" in capsys.readouterr().out.splitlines()
    tokenizer = json.loads((qwen / "tokenizer.json").read_text())
    (qwen / "tokenizer.json").write_text(json.dumps(tokenizer | {"normalizer": {"type": "NFKC"}}))
    assert main(["inspect", str(qwen)]) == 2
    assert "tokenizer.json: the normalizer `NFKC` is not supported" in capsys.readouterr().out
    changed(qwen, model_type="mamba")
    assert main(["inspect", str(qwen)]) == 2
    assert "models of the kind `mamba` are not supported" in capsys.readouterr().err


def test_the_checks_of_doctor_pass_to_the_logits(llama: tuple[LLM, dict[str, Any]]) -> None:
    lm, _ = llama
    checks = {check.name: check for check in model_checks(lm.file.folder)}  # type: ignore[attr-defined]
    assert [checks[name].fault for name in ("template", "tokenizer", "tensors")] == ["", "", ""]
    assert "perplexity" in checks["logits"].text + checks["logits"].fault


def test_experts_of_another_kind_are_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "qwen3moe", EXPERTS, ("BF16",))
    file = open_checkpoint(tmp_path)
    up = file.tensors["blk.1.ffn_up_exps.weight"]
    assert up.shape == (8, 96, 64) and up.size == up.data.nbytes == 8 * 96 * 64 * 2
    assert up.name == "model.layers.1.mlp.experts.*.up_proj.weight"
    usual = json.loads((tmp_path / "config.json").read_text())
    for values, what in (
        ({"norm_topk_prob": False}, "norm_topk_prob"),
        ({"decoder_sparse_step": 2}, "layers without experts"),
        ({"mlp_only_layers": [1]}, "layers without experts"),
        ({"shared_expert_intermediate_size": 64}, "`shared_expert_intermediate_size` is 64"),
    ):
        changed(tmp_path, **values)
        with pytest.raises(UnsupportedError, match=what):
            open_checkpoint(tmp_path)
        (tmp_path / "config.json").write_text(json.dumps(usual))
    changed(tmp_path, num_experts=9)
    with pytest.raises(ModelFileError, match=r"`model\.layers\.0\.mlp\.experts\.8\.gate_proj\.weight`|`model\.layers\.0\.mlp\.gate"):
        open_checkpoint(tmp_path)


def test_gpt_oss_of_another_kind_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "gpt-oss", GPT_OSS, OF_GPT_OSS)
    usual = json.loads((tmp_path / "config.json").read_text())
    for values, what in (
        ({"quantization_config": None}, "supported in mxfp4"),
        ({"quantization_config": {"quant_method": "fp8"}}, "`quantization_config` says 'fp8'"),
        ({"swiglu_limit": 8.0}, "`swiglu_limit` is 8.0"),
        ({"layer_types": ["full_attention"] * 2}, "windows in turn"),
        ({"intermediate_size": 90}, "no whole blocks of 32"),
        ({"rope_scaling": usual["rope_scaling"] | {"truncate": True}}, "`truncate` True is not supported"),
    ):
        changed(tmp_path, **values)
        with pytest.raises(UnsupportedError, match=what):
            open_checkpoint(tmp_path)
        (tmp_path / "config.json").write_text(json.dumps(usual))
    stored = load_safetensors(tmp_path / "model.safetensors")
    kinds = {"bf16": "BF16", "f16": "F16", "f32": "F32", "u8": "U8"}
    tensors = {n: (kinds[t.dtype.name], stored.raw(n)) for n, t in stored.stored.items()}
    blocks = "model.layers.0.mlp.experts.down_proj_blocks"
    tensors[blocks] = ("F32", np.zeros(stored[blocks].shape, np.float32))
    shapes = {n: t.shape for n, t in stored.stored.items()}
    (tmp_path / "model.safetensors").write_bytes(safetensors(tensors, shapes=shapes))
    with pytest.raises(UnsupportedError, match=r"down_proj_blocks` has the dtype f32, which is not supported for it\nfact: supported: u8"):
        open_checkpoint(tmp_path)


def test_special_tokens_are_those_that_the_files_name(qwen: Path) -> None:
    changed(qwen, "generation_config.json", eos_token_id=[3, 7])
    changed(qwen, "tokenizer_config.json", add_bos_token=True)
    changed(qwen, vocab_size=300)  # models pad their vocabulary
    tokenizer = from_folder(qwen)
    assert len(tokenizer) == 300 and tokenizer.decode([97, 299, 97]) == "aa"
    assert {3, 7, 260} <= tokenizer.ends and tokenizer.encode("a") == [tokenizer.bos, 97]
    for name, value in (("eos_token", "<nothing>"), ("bos_token", 5), ("add_bos_token", "yes")):
        changed(qwen, "tokenizer_config.json", **{name: value})
        with pytest.raises(ModelFileError, match=f"tokenizer_config.json: `{name}` is"):
            from_folder(qwen)
        changed(qwen, "tokenizer_config.json", eos_token="<|im_end|>", bos_token="<|im_start|>", add_bos_token=True)
    changed(qwen, "generation_config.json", eos_token_id="</s>")
    with pytest.raises(ModelFileError, match=r"generation_config\.json: `eos_token_id` is"):
        from_folder(qwen)
    (qwen / "tokenizer.json").unlink()
    with pytest.raises(ModelFileError, match=r"has no tokenizer\.json"):
        from_folder(qwen)


def test_templates_of_several_files(qwen: Path) -> None:
    changed(qwen, "tokenizer_config.json", chat_template=[{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}])
    assert open_checkpoint(qwen).text("tokenizer.chat_template") == "d"
    (qwen / "chat_template.jinja").write_text(TEMPLATE)
    assert open_checkpoint(qwen).text("tokenizer.chat_template") == TEMPLATE
    (qwen / "chat_template.jinja").unlink()
    changed(qwen, "tokenizer_config.json", chat_template=7)
    with pytest.raises(ModelFileError, match=r"tokenizer_config\.json: `chat_template` is 7"):
        open_checkpoint(qwen)
