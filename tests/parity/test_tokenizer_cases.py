"""Tokenizers of real vocabularies, against the cases that llama.cpp checks its own with (made with the models' own tokenizers)."""

from __future__ import annotations

import pytest

from fetched import llama_cpp
from pliant.frontends.gguf import GgufFile, open_gguf
from pliant.llm.tokenizer import from_gguf

NAMES = "bert-bge command-r deepseek-coder deepseek-llm falcon gemma-4 gpt-2 llama-bpe llama-spm mpt phi-3 qwen2 qwen35 refact starcoder"


def vocabulary(name: str) -> tuple[GgufFile, list[str], list[list[int]]]:
    """A vocabulary, texts, and the tokens of each."""
    path = llama_cpp() / f"ggml-vocab-{name}.gguf"
    between = "\n__ggml_vocab_test__\n"
    texts = path.with_suffix(".gguf.inp").read_bytes().decode().removesuffix(between).split(between)
    lines = path.with_suffix(".gguf.out").read_text().splitlines()
    return open_gguf(path), texts, [[int(word) for word in line.split()] for line in lines]


@pytest.mark.parametrize("name", NAMES.split())
def test_reference_cases(name: str) -> None:
    file, texts, expected = vocabulary(name)
    tokenizer = from_gguf(file)
    assert len(texts) == len(expected) > 40
    for text, ids in zip(texts, expected, strict=True):
        assert tokenizer.encode(text, add_special=False) == ids, text
        if name != "bert-bge":  # which forgets case, accents and spaces
            assert tokenizer.decode(ids) == text
