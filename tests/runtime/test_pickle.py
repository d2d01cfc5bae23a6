"""Pickles of executables, embedders and language models: other processes compute the same, and damaged bytes are refused."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import ModelFileError, Tensor, UnsupportedError, artifact, dim, f32, function, ops
from pliant.llm import pickled
from pliant.runtime import container
from tiny_bert import WORDS, write_bert
from tiny_models import tiny

n = dim("n", max=64)
weight = np.random.default_rng(3).standard_normal((8, 16)).astype(np.float32)
x = np.random.default_rng(4).standard_normal((6, 8)).astype(np.float32)
TEXTS = ["the cat sat on the mat", "a dog", "cat on cat", "the dog sat"]


@function
def layer(x: Tensor[f32, n, 8]) -> Tensor[f32, n, 16]:
    return ops.relu(x @ weight) * 2.0


EXPECTED = np.maximum(x @ weight, 0.0) * 2.0


@pytest.fixture(scope="module")
def f() -> pliant.Executable:
    return pliant.compile(layer, threads=2)


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Processes that begin from nothing, as those of other machines do."""
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        yield processes


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> pliant.Embedder:
    return pliant.Embedder(write_bert(tmp_path_factory.mktemp("bert")))


def content_of(value: Any) -> bytes:
    """The bytes that a pickle of the object holds."""
    content: bytes = value.__reduce__()[1][0]
    return content


def changed(content: bytes, kind: str, change: Callable[[Any], Any]) -> bytes:
    """The same sections, except that one has other bytes."""
    file = container.parse(content, "it")

    def write(w: container.Sections) -> None:
        for s in file.sections:
            w.add(s.kind, s.name, change(bytes(s.data)) if s.kind == kind else s.data, **s.facts)

    return container.to_bytes(write)


# Executables.


def test_a_process_computes_what_it_was_sent(f: pliant.Executable, pool: ProcessPoolExecutor) -> None:
    assert np.allclose(pool.submit(operator.call, f, x).result(), EXPECTED, rtol=1e-5, atol=1e-6)


def test_nothing_is_compiled_on_the_same_machine(f: pliant.Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(*args: Any, **named: Any) -> Any:
        raise AssertionError("nothing is compiled")

    monkeypatch.setattr("pliant.pipeline.run_steps", no_compiler)
    g = pickle.loads(pickle.dumps(f))
    assert np.array_equal(g(x), f(x)) and g.threads == 2 and str(g.contract) == str(f.contract)
    assert np.array_equal(pickle.loads(pickle.dumps(g))(x), f(x)), "a loaded one can be sent on"


def test_another_machine_compiles(f: pliant.Executable, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    data = pickle.dumps(f)
    monkeypatch.setattr(artifact, "fingerprint", lambda: "of code for another machine")
    g = pickle.loads(data)
    assert np.allclose(g(x), EXPECTED, rtol=1e-5, atol=1e-6)
    assert "this pickle of an executable has no code for this machine" in capfd.readouterr().err


def test_weights_stay_constant(f: pliant.Executable) -> None:
    found = next(a for a in pickle.loads(pickle.dumps(f))._provenance.program.constants if a.shape == weight.shape)
    assert np.array_equal(found, weight) and found.ctypes.data % 64 == 0 and not found.flags.writeable


def test_damaged_bytes_are_refused(f: pliant.Executable) -> None:
    content = content_of(f)
    for section in container.parse(content, "it").sections:
        if section.data:
            at = section.offset + len(section.data) // 2
            damaged = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
            with pytest.raises(ModelFileError, match="this pickle of an executable is no usable"):
                artifact.unpickled(damaged, None)
    for cut in (b"", content[:40], content[:-1]):
        with pytest.raises(ModelFileError):
            artifact.unpickled(cut, None)


def test_a_program_with_python_functions_is_refused() -> None:
    def twice(a: Any) -> Any:
        return a * 2

    @function
    def calls(a: Tensor[f32, n]) -> Tensor[f32, n]:
        return ops.call_host(twice, [a], out=Tensor[f32, n])

    with pytest.raises(UnsupportedError, match="the Python function `twice`"):
        pickle.dumps(pliant.compile(calls))


# Embedders.


def test_a_process_embeds(embedder: pliant.Embedder, pool: ProcessPoolExecutor) -> None:
    found = pool.submit(operator.methodcaller("embed", TEXTS), embedder).result()
    assert np.array_equal(found, embedder.embed(TEXTS)) and len({v.tobytes() for v in found}) == len(TEXTS)


def test_parts_of_an_embedder_that_do_not_fit_are_refused(embedder: pliant.Embedder) -> None:
    content = content_of(embedder)
    for kind, change, what in (
        ("embedder", lambda d: d.replace(b'"width": 32', b'"width": 33'), "its program and its settings do not fit"),
        ("embedder", lambda d: d.replace(b'"heads": 2', b'"heads": -2'), "its settings are out of range"),
        ("embedder", lambda d: d.replace(b'"heads"', b'"hats"'), "its settings are not those"),
        ("embedder", lambda d: b"[]", "its section `embedder` is not a JSON object"),
        ("tokenizer", lambda d: b"{", "tokenizer.json: the file is not JSON"),
        ("tokenizer", lambda d: b"\xff", "its tokenizer is not UTF-8"),
        ("tokenizer", lambda d: d.replace(b'"dog": 11', b'"dog": 12'), "has 13 words, the model 12"),
    ):
        with pytest.raises(ModelFileError, match=what):
            pickled.embedder_of(changed(content, kind, change))
    with pytest.raises(ModelFileError, match="it has 0 sections `embedder`"):
        pickled.embedder_of(content_of(embedder._run))


def test_dask_embeds_ten_thousand_texts(embedder: pliant.Embedder) -> None:
    """The example of the page, with processes that Dask starts."""
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    texts = [TEXTS[i % 4] + f" {WORDS[5 + i % 7]}" for i in range(10_000)]
    page = (Path(__file__).parents[2] / "docs" / "more_than_one_machine.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"e": embedder, "texts": texts}
    exec(page.split("```py\n")[1].split("```")[0], names)
    assert len(names["futures"]) == 20
    assert np.allclose(names["vectors"], embedder.embed(texts), rtol=1e-5, atol=1e-6)


# Language models.


def answer(lm: pliant.LLM) -> tuple[int, ...]:
    return lm.generate("Hello", max_tokens=8, temperature=0).tokens


def test_a_language_model_moves(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny("llama", ["Q8_0"]))
    lm = pliant.LLM(path, cache="f32", context=256, threads=1)
    data, content = pickle.dumps(lm), content_of(lm)
    here = pickle.loads(data)
    assert here.file.stamps == lm.file.stamps, "the same file: its program may be in the program store"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelFileError, match="has changed since the model was opened"):
        pickle.dumps(lm)
    path.unlink()
    with pytest.raises(ModelFileError, match="cannot be read"):
        pickle.dumps(lm)
    there = pickle.loads(data)
    assert there.file.stamps == () and answer(there) == answer(here) == answer(lm)
    assert (there.name, there.context, there.options) == (lm.name, 256, {"cache": "f32", "context": 256, "threads": 1})
    for kind, change, what in (
        ("llm", lambda d: d.replace(b"f32", b"f64"), "`cache` is 'f64'"),
        ("llm", lambda d: d.replace(b'"threads"', b'"beds"'), "its options are not those"),
        ("gguf", lambda d: d[:-64], "gguf: "),
    ):
        with pytest.raises(ModelFileError, match=what):
            pickled.language_model_of(changed(content, kind, change))
