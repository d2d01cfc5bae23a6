"""`pliant inspect` and `pliant doctor` of language models: tiny ones, made here, and broken copies of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pliant.cli import main
from pliant.frontends.gguf import open_gguf
from pliant.llm import model_checks
from tiny_models import tiny, tiny_file


def test_inspect_a_language_model(capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_file()
    assert main(["inspect", str(path), "--json"]) == 0
    facts, file = json.loads(capsys.readouterr().out), open_gguf(path)
    assert facts["architecture"] == "llama" and facts["problem"] == ""
    assert facts["bytes"] == sum(t.data.nbytes for t in file.tensors.values()) == sum(facts["quantization"].values())
    assert facts["settings"]["block_count"] == file.integer("llama.block_count")
    assert facts["tokenizer"]["tokens"] == len(file.strings("tokenizer.ggml.tokens"))
    from tiny_models import tiny_llm

    lm = tiny_llm()
    smallest = facts["memory"][0]
    pages = lm.engine.cache.keys.nbytes + lm.engine.cache.values.nbytes
    assert smallest["cache"] * lm.engine.cache.keys.shape[0] * lm.engine.cache.run * 64 == pages * smallest["context"]
    assert main(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "architecture llama" in shown and "Q8_0" in shown and "memory at a context of" in shown
    assert main(["inspect", str(path), "--show", "tensors"]) == 0
    assert capsys.readouterr().out.count("Tensor[") == len(file.tensors)
    assert main(["inspect", str(path), "--show", "program"]) == 2


def test_inspect_says_what_is_not_supported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(tiny().replace(b"llama", b"lamma"))
    assert main(["inspect", str(path)]) == 2
    assert "models of the architecture `lamma` are not supported" in capsys.readouterr().out
    assert main(["inspect", "hf:nobody/nothing"]) == 2
    assert "nobody/nothing" in capsys.readouterr().err


def test_doctor_of_a_language_model(capsys: pytest.CaptureFixture[str]) -> None:
    from tiny_models import tiny_llm

    main(["doctor", str(tiny_file()), "--json"])
    checks = {c["name"]: c for c in json.loads(capsys.readouterr().out)}
    assert list(checks) == ["template", "tokenizer", "tensors", "logits"] and checks["tensors"]["fault"] == ""
    lm = tiny_llm()
    ids = lm.tokenizer.encode(model_checks.SENTENCE)
    logits = lm.logits(ids)[:-1].astype(np.float64)
    chances = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = np.exp(-np.mean([np.log(c[i]) for c, i in zip(chances, ids[1:], strict=True)]))
    assert f"perplexity {expected:.4g} " in checks["logits"]["text"]


def test_doctor_finds_what_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = open_gguf(tiny_file(kinds=("F32",)))
    name = next(t.name for t in file.tensors.values() if t.format.name == "F32" and len(t.shape) > 1)
    data = bytearray(tiny_file(kinds=("F32",)).read_bytes())
    row = bytes(file.tensors[name].data.reshape(-1)[:64])
    at = data.index(row)
    for value, fault in ((np.nan, "not finite"), (None, "all zeros")):
        size = file.tensors[name].data.nbytes if value is None else 4
        broken = tmp_path / "broken.gguf"
        broken.write_bytes(bytes(data[:at]) + (bytes(size) if value is None else np.float32(value).tobytes()) + bytes(data[at + size :]))
        found, text = model_checks._tensors(open_gguf(broken))
        assert f"`{name}`" in found and fault in found and text == ""
    monkeypatch.setattr(model_checks, "_logits", lambda file: ("", ""))
    assert main(["doctor", str(broken)]) == 1
    assert "tensors    problem: tensor" in capsys.readouterr().out
