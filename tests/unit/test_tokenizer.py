"""Tokenizers: special tokens, bytes, streams that never show half a character, Unicode classes, and files that are refused."""

from __future__ import annotations

import json
import random
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from counts import count
from gguf_files import BOOL, F32, I32, STRING, U32, array, number, text, write
from pliant import Error, ModelFileError, UnsupportedError
from pliant.frontends.gguf.reader import from_bytes
from pliant.llm.tokenizer import Tokenizer, from_gguf, from_json
from pliant.llm.tokenizer.classes import Pattern
from pliant.llm.tokenizer.from_json import from_json_text
from pliant.llm.tokenizer.merge import merge
from pliant.llm.tokenizer.split import KINDS, words

BYTES = [f"<0x{b:02X}>" for b in range(256)]
SPM_TOKENS = ["<unk>", "<s>", "</s>", *BYTES, "▁", "a", "b", "▁a", "ab", "▁ab", "<|user|>"]
SPM_SCORES = [0.0, 0.0, 0.0, *[0.0] * 256, -5.0, -6.0, -7.0, -2.0, -1.0, -0.5, 0.0]
SPM_KINDS = [2, 3, 3, *[6] * 256, *[1] * 6, 3]
GPT2 = [chr(c) for c in [*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324)]]


def gguf(model: str, tokens: list[str], kinds: list[int], **more: bytes) -> Tokenizer:
    pairs = [("tokenizer.ggml.model", text(model)), ("tokenizer.ggml.tokens", array(STRING, tokens))]
    pairs += [("tokenizer.ggml.token_type", array(I32, kinds))]
    pairs += [(key if "." in key else f"tokenizer.ggml.{key}", value) for key, value in more.items()]
    return from_gguf(from_bytes(write(pairs), "m"))


def spm(**more: bytes) -> Tokenizer:
    return gguf("llama", SPM_TOKENS, SPM_KINDS, scores=array(F32, SPM_SCORES), **more)


def bpe(merges: list[str], extra: list[tuple[str, int]] = [], **more: bytes) -> Tokenizer:  # noqa: B006
    tokens = [*GPT2, *dict.fromkeys(m.replace(" ", "") for m in merges), *[t for t, _ in extra]]
    kinds = [1] * (len(tokens) - len(extra)) + [k for _, k in extra]
    more.setdefault("pre", text("gpt-2"))
    return gguf("gpt2", tokens, kinds, merges=array(STRING, merges), **more)


def named(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [tokenizer.vocabulary.tokens[i] for i in ids]


def test_sentencepiece_by_hand() -> None:
    tokenizer = spm()
    assert named(tokenizer, tokenizer.encode("ab a")) == ["<s>", "▁ab", "▁a"]
    assert named(tokenizer, tokenizer.encode("ba", add_special=False)) == ["▁", "b", "a"]
    assert named(tokenizer, tokenizer.encode("é", add_special=False)) == ["▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("  ab é\n")) == "  ab é\n"
    assert tokenizer.encode("") == [1] and tokenizer.encode("", add_special=False) == []


def test_sentencepiece_settings() -> None:
    bare = spm(add_space_prefix=number(BOOL, False), add_bos_token=number(BOOL, False), add_eos_token=number(BOOL, True))
    assert named(bare, bare.encode("ab")) == ["ab", "</s>"]
    assert bare.decode(bare.encode(" ab")) == " ab"


def test_special_tokens_count_only_where_asked() -> None:
    tokenizer = spm()
    assert named(tokenizer, tokenizer.encode("a<|user|>a", parse_special=True)) == ["<s>", "▁a", "<|user|>", "▁a"]
    spelled = tokenizer.encode("a<|user|>a")
    assert tokenizer.vocabulary.ids["<|user|>"] not in spelled and tokenizer.decode(spelled) == "a<|user|>a"
    assert tokenizer.decode(tokenizer.encode("a</s>", parse_special=True)) == "a"
    assert tokenizer.decode(tokenizer.encode("a</s>", parse_special=True), special=True) == "<s> a</s>"


def test_user_defined_tokens_always_count_and_the_longest_wins() -> None:
    tokenizer = bpe([], [("<x>", 4), ("<x><y>", 4), ("<s>", 3)])
    assert named(tokenizer, tokenizer.encode("<x><y><x>a")) == ["<x><y>", "<x>", "a"]
    assert named(tokenizer, tokenizer.encode("<s>")) == ["<", "s", ">"]
    assert named(tokenizer, tokenizer.encode("<s>", parse_special=True)) == ["<s>"]


def test_bpe_merges_in_their_order() -> None:
    tokenizer = bpe(["b c", "a b", "a bc", "Ġ a"])
    assert named(tokenizer, tokenizer.encode("abc ab a")) == ["abc", "Ġ", "ab", "Ġa"]  # "b c" comes before "a b"; " ab": "a b" before "Ġ a"
    assert tokenizer.encode("abc ab a") == tokenizer.encode("abc ab a")  # from the cache of words as well


def test_tokens_around_texts() -> None:
    extra = [("<s>", 3), ("</s>", 3)]
    first = len(GPT2)
    settings = {"bos_token_id": number(U32, first), "eos_token_id": number(U32, first + 1)}
    plain = bpe([], extra, **settings)
    assert plain.encode("a") == [GPT2.index("a")] and (plain.bos, plain.eos) == (first, first + 1)
    both = bpe([], extra, **settings, add_bos_token=number(BOOL, True), add_eos_token=number(BOOL, True))
    assert both.encode("a") == [first, GPT2.index("a"), first + 1] and both.encode("a", add_special=False) == [GPT2.index("a")]
    assert bpe([], extra, **settings, pre=text("llama-bpe")).encode("a")[0] == first


def test_tokens_that_end_a_turn() -> None:
    tokenizer = bpe([], [("<|endoftext|>", 3), ("<|im_end|>", 3), ("<|eot_id|>", 1), ("</s>", 3)], eos_token_id=number(U32, len(GPT2) + 3))
    assert {tokenizer.vocabulary.tokens[i] for i in tokenizer.ends} == {"<|endoftext|>", "<|im_end|>", "</s>"}


def test_special_tokens_of_phi_3_take_the_line_break() -> None:
    pairs = {"general.name": text("Phi-3 mini")}
    tokenizer = bpe([], [("<|end|>", 3), ("<s>", 3)], **pairs)
    assert named(tokenizer, tokenizer.encode("<|end|>\n a<s> b", parse_special=True)) == ["<|end|>", "a", "<s>", "Ġ", "b"]


def test_streams_show_whole_characters() -> None:
    tokenizer = bpe([])
    for message in ("é", "日本", "👨‍👩‍👧 ok", "a\u0301"):
        stream = tokenizer.stream_decoder()
        shown = [stream.push(token) for token in tokenizer.encode(message)]  # a token is a byte
        assert "".join(shown) + stream.finish() == message
        assert all("\ufffd" not in piece for piece in shown)
    stream = tokenizer.stream_decoder()
    assert [stream.push(t) for t in tokenizer.encode("é")[:1]] == [""] and stream.finish() == "\ufffd"


def test_streams_of_bytes_that_are_no_text() -> None:
    """As Python decodes them, whatever comes; nothing that was shown is taken back."""
    tokenizer, chance = bpe([]), random.Random(3)
    token = {tokenizer.token_bytes(t): t for t in range(len(GPT2))}
    for _ in range(200):
        said = bytes(chance.choice((0x41, 0x80, 0xBF, 0xC3, 0xA9, 0xE6, 0x97, 0xED, 0xA0, 0xF0, 0x9F, 0xFF)) for _ in range(12))
        stream, came = tokenizer.stream_decoder(), ""
        for byte in said:
            came += stream.push(token[bytes([byte])])
            assert said.decode("utf-8", "replace").startswith(came)
        assert came + stream.finish() == said.decode("utf-8", "replace")


def test_streams_of_random_tokens_are_python_s_replacement() -> None:
    chance = random.Random(11)
    for tokenizer in (bpe(["Ã ©", "Ġ a"]), spm(add_space_prefix=number(BOOL, False))):
        for _ in range(count(300, 20_000)):
            ids = [chance.randrange(len(tokenizer)) for _ in range(chance.randrange(20))]
            said = b"".join(tokenizer.token_bytes(i) for i in ids)
            assert tokenizer.decode(ids) == said.decode(errors="replace")
    with pytest.raises(IndexError):
        tokenizer.decode([len(tokenizer)])


def test_lone_surrogates_are_replaced() -> None:
    tokenizer = bpe([])
    assert tokenizer.decode(tokenizer.encode("a\ud800b\udcff")) == "a\ufffdb\ufffd"


def test_vocabularies_without_a_byte_say_so() -> None:
    tokens = [t for t in GPT2 if t != "a"]
    lacking = gguf("gpt2", tokens, [1] * len(tokens), merges=array(STRING, []), pre=text("gpt-2"))
    with pytest.raises(ModelFileError, match="no token for the byte `a`"):
        lacking.encode("a")


def test_unknown_kinds_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="pre-tokenizer `qwen3`"):
        bpe([], pre=text("qwen3"))
    with pytest.raises(UnsupportedError, match="the kind `rwkv`"):
        gguf("rwkv", ["a"], [1])


@pytest.mark.parametrize(
    "more",
    [
        {"bos_token_id": number(U32, 10_000)},
        {"eos_token_id": text("x")},
        {"add_bos_token": number(U32, 1)},
        {"merges": array(I32, [1])},
        {"token_type": array(I32, [1])},
        {"token_type": array(F32, [float("nan")] * len(GPT2))},
        {"tokens": text("x")},
        {"tokens": array(STRING, [])},
        {"pre": number(U32, 1)},
    ],
    ids=lambda more: next(iter(more)),
)
def test_wrong_metadata(more: dict[str, bytes]) -> None:
    pairs = {"model": text("gpt2"), "tokens": array(STRING, GPT2), "merges": array(STRING, []), "pre": text("gpt-2"), **more}
    with pytest.raises(ModelFileError):
        from_gguf(from_bytes(write([(f"tokenizer.ggml.{k}", v) for k, v in pairs.items()]), "m"))


@pytest.mark.timeout(60)
def test_texts_without_spaces_cost_no_more() -> None:
    """A hundred thousand letters in one word, with merges that overlap: quadratic work would take hours."""
    tokenizer = bpe(["a a", "aa aa", "b a"])
    assert len(tokenizer.encode("a" * 100_000)) == 25_000
    for name in {kind.patterns: name for name, kind in KINDS.items()}.values():
        for hostile in (
            "a" * 20_000,
            " " * 20_000,
            "\n \n" * 7_000,
            "1" * 20_000,
            "'" * 20_000,
            "Aa" * 10_000,
            "é" * 20_000,
            "\u0301" * 20_000,
        ):
            assert "".join(words(name).split(hostile)) == hostile


def test_merge_takes_the_cheapest_then_the_leftmost() -> None:
    costs = {("a", "a"): 1.0, ("aa", "a"): 0.0}
    assert merge(list("aaaa"), lambda a, b: costs.get((a, b))) == ["aaa", "a"]
    assert merge([], lambda a, b: 0.0) == [] and merge(["x"], lambda a, b: 0.0) == ["x"]


def test_classes_are_those_of_unicode() -> None:
    chance = random.Random(12)
    sample = [chr(c) for c in [*range(0x3001), *(chance.randrange(0x110000) for _ in range(3000))] if not 0xD800 <= c < 0xE000]
    for name in ("L", "Lu", "N", "P", "S", "M"):
        pattern = Pattern(rf"\p{{{name}}}")
        inverse = Pattern(rf"[^\p{{{name}}}]")
        for c in sample:
            inside = unicodedata.category(c).startswith(name)
            assert (re.fullmatch(pattern._compiled, pattern.spell(c)) is not None) == inside, (name, hex(ord(c)))
            assert (re.fullmatch(inverse._compiled, inverse.spell(c)) is not None) != inside, (name, hex(ord(c)))
    space = Pattern(r"\s")
    white = {*"\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000", *map(chr, range(0x2000, 0x200B))}
    assert {c for c in sample if space._compiled.fullmatch(space.spell(c))} == white


def test_named_sets() -> None:
    pattern = Pattern(r"\p{Kana}+|\p{L}", {"Kana": "ぁ-ん-"})
    assert [a for a, b in pattern.spans("xyあい-") if b - a == 3] == [2]


def test_pieces_together_are_the_text() -> None:
    chance = random.Random(13)
    for name in KINDS:
        for _ in range(20):
            message = "".join(chr(chance.choice((chance.randrange(32, 127), chance.randrange(1, 0xD800), 32, 10))) for _ in range(30))
            pieces = list(words(name).split(message))
            assert "".join(pieces) == message and all(pieces)


def test_mutated_vocabularies_are_used_or_refused() -> None:
    chance = random.Random(14)
    pairs = [("tokenizer.ggml.model", text("llama")), ("tokenizer.ggml.tokens", array(STRING, SPM_TOKENS))]
    pairs += [("tokenizer.ggml.token_type", array(I32, SPM_KINDS)), ("tokenizer.ggml.scores", array(F32, SPM_SCORES))]
    pairs += [("tokenizer.ggml.merges", array(STRING, ["a b"])), ("tokenizer.ggml.bos_token_id", number(U32, 1))]
    used = 0
    for _ in range(count(1_000, 200_000)):
        model = chance.choice(("llama", "gpt2", "bert", "gemma4"))
        data = bytearray(write([("tokenizer.ggml.model", text(model)), *pairs[1:]]))
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(24, len(data))] = chance.randrange(256)
        try:
            tokenizer = from_gguf(from_bytes(bytes(data), "m"))
            ids = tokenizer.encode("ab é <|user|> \x00", parse_special=True)
            tokenizer.decode(ids)
            used += 1
        except Error:
            continue
    assert used > 0


def test_special_tokens_have_a_limit() -> None:
    with pytest.raises(ModelFileError, match="600 characters"):
        bpe([], [("<" * 600, 4)]).encode("a")


# tokenizer.json

WORDPIECE: dict[str, Any] = {
    "normalizer": {"type": "BertNormalizer", "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
    "added_tokens": [{"id": 1, "content": "[CLS]", "special": True}],
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "un": 3, "##able": 4, "!": 5}},
}
BPE: dict[str, Any] = {
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
    "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate([*GPT2, "ab"])}, "merges": [["a", "b"]]},
}


CHARACTERS: dict[str, Any] = {
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    "model": {
        "type": "BPE",
        "byte_fallback": True,
        "vocab": {**{f"<0x{b:02X}>": b for b in range(256)}, "▁": 256, "a": 257, "▁a": 258},
        "merges": [["▁", "a"]],
    },
}


def test_characters_without_a_token_are_bytes() -> None:
    tokenizer = from_json_text(json.dumps(CHARACTERS))
    assert tokenizer.encode("a aé") == [257, 258, 0xC3, 0xA9]
    assert tokenizer.decode([257, 258, 0xC3, 0xA9]) == "a aé"
    long = "a " * 1000
    assert tokenizer.encode(long) == [257, *[258] * 999, 256] and [*tokenizer.model._words] == ["a▁aé"]  # type: ignore[attr-defined]


def test_json_by_hand() -> None:
    tokenizer = from_json_text(json.dumps(WORDPIECE))
    assert tokenizer.encode("Ünable! x") == [1, 3, 4, 5, 0, 2]
    assert tokenizer.decode([1, 3, 4, 5]) == "unable !"
    found = from_json_text(json.dumps(BPE))
    assert named(found, found.encode("ab c")) == ["ab", "Ġ", "c"]


@pytest.mark.parametrize(
    ("base", "change"),
    [
        (WORDPIECE, {"normalizer": {"type": "NFKC"}}),
        (WORDPIECE, {"normalizer": {"type": "BertNormalizer", "strip_accents": False}}),
        (WORDPIECE, {"pre_tokenizer": {"type": "Whitespace"}}),
        (WORDPIECE, {"model": {"type": "Unigram", "vocab": []}}),
        (WORDPIECE, {"post_processor": {"type": "Other"}}),
        (WORDPIECE, {"added_tokens": [{"id": 1, "content": "[CLS]", "lstrip": True}]}),
        (BPE, {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}}),
        (BPE, {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+b"}, "behavior": "Isolated"}}),
        (BPE, {"pre_tokenizer": {"type": "Digits", "individual_digits": True}}),
        (BPE, {"normalizer": {"type": "Lowercase"}}),
        (BPE, {"model": {**BPE["model"], "dropout": 0.1}}),
        (BPE, {"model": {**BPE["model"], "byte_fallback": True}}),
        (CHARACTERS, {"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "▁"}}),
        (CHARACTERS, {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}}),
        (CHARACTERS, {"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "split": False}}),
        (CHARACTERS, {"normalizer": {"type": "NFKC"}}),
    ],
)
def test_json_with_unknown_steps_is_refused(base: dict[str, Any], change: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"tokenizer\.json: "):
        from_json_text(json.dumps({**base, **change}))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[",
        "[" * 200_000,
        "3",
        "[]",
        "{}",
        '{"model": 3}',
        '{"model": {"type": "BPE"}}',
        json.dumps({**BPE, "model": {"type": "BPE", "vocab": {"a": 1 << 40}, "merges": []}}),
        json.dumps({**BPE, "model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}),
        json.dumps({**BPE, "model": {"type": "BPE", "vocab": {"a": True}, "merges": []}}),
        json.dumps({**BPE, "model": {"type": "BPE", "vocab": {"a": 4_000_000}, "merges": []}}),
        json.dumps({**BPE, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": [[1, 2]]}}),
        json.dumps({**BPE, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": {}}}),
        json.dumps({**BPE, "added_tokens": [3]}),
        json.dumps({**BPE, "added_tokens": [{"id": 0}]}),
        json.dumps({**WORDPIECE, "post_processor": {"type": "BertProcessing", "sep": ["x", 10_000], "cls": ["x", 1]}}),
        json.dumps({**WORDPIECE, "post_processor": {"type": "BertProcessing", "sep": 3}}),
        json.dumps({**WORDPIECE, "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "none"}}]}}),
        json.dumps({**WORDPIECE, "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": 3}, {"Sequence": {}}]}}),
    ],
)
def test_broken_json_is_refused(content: str) -> None:
    with pytest.raises(ModelFileError, match=r"^(tokenizer\.json|tokenizer): "):
        from_json_text(content)


def test_json_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError):
        from_json(tmp_path / "none.json")
    (tmp_path / "x.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelFileError, match="not UTF-8"):
        from_json(tmp_path / "x.json")
