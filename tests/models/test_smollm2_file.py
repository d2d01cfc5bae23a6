"""The default model's real file, when it can be fetched, against the gguf and tokenizers packages."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pliant import Error
from pliant.frontends.gguf import GgufFile, open_gguf
from pliant.llm.chat_template import ChatTemplate
from pliant.llm.locate import locate
from pliant.llm.tokenizer import from_gguf


@cache
def path() -> Path | str:
    try:
        return locate("smollm2-135m")
    except Error as problem:
        return str(problem).splitlines()[0]


@pytest.fixture
def file() -> GgufFile:
    found = path()
    if isinstance(found, str):
        pytest.skip(f"the model cannot be fetched: {found}")
    return open_gguf(found)


def test_what_the_file_says(file: GgufFile) -> None:
    assert (file.architecture, file.version, len(file.tensors)) == ("llama", 3, 272)
    assert [file.integer(f"llama.{k}") for k in ("block_count", "embedding_length", "feed_forward_length", "context_length")] == [
        30,
        576,
        1536,
        8192,
    ]
    kinds: dict[str, int] = {}
    for tensor in file.tensors.values():
        kinds[tensor.format.name] = kinds.get(tensor.format.name, 0) + tensor.size
    assert {k: round(v / 1e6, 1) for k, v in kinds.items()} == {"Q4_1": 66.4, "Q8_0": 30.1, "F32": 0.1}
    assert file.tensor("token_embd.weight", (49152, 576)).format.name == "Q8_0"


def test_tensors_are_those_of_the_gguf_package(file: GgufFile) -> None:
    gguf = pytest.importorskip("gguf")
    theirs = {t.name: t for t in gguf.GGUFReader(file.name).tensors}
    assert {n: t.shape for n, t in file.tensors.items()} == {n: tuple(int(d) for d in reversed(t.shape)) for n, t in theirs.items()}
    for name in ("blk.0.attn_q.weight", "blk.17.ffn_down.weight", "blk.29.attn_norm.weight"):
        expected = gguf.dequantize(theirs[name].data, theirs[name].tensor_type)
        assert np.array_equal(file.tensors[name].dequantized(), expected)


def test_a_conversation_as_the_model_knows_it(file: GgufFile) -> None:
    tokenizer = from_gguf(file)
    template = ChatTemplate.from_gguf(file, tokenizer)
    assert template is not None
    text = template.render([{"role": "user", "content": "Why is the sky blue?"}], add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer.encode(text, add_special=False, parse_special=True)
    assert ids == library(file).encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, special=True) == text
    assert {tokenizer.vocabulary.tokens[i] for i in tokenizer.ends} == {"<|im_end|>", "<|endoftext|>"}


def library(file: GgufFile) -> Any:
    """The tokenizers library with the file's vocabulary, and the steps of the model's tokenizer.json."""
    hf = pytest.importorskip("tokenizers")
    tokens = file.strings("tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in file.strings("tokenizer.ggml.merges")]
    found = hf.Tokenizer(hf.models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    steps = hf.pre_tokenizers
    found.pre_tokenizer = steps.Sequence([steps.Digits(individual_digits=True), steps.ByteLevel(add_prefix_space=False)])
    special = [tokens[i] for i in np.flatnonzero(file.numbers("tokenizer.ggml.token_type") == 3)]
    found.add_special_tokens(special)
    return found
