"""Builds the tokenizer of a Hugging Face `tokenizer.json`: BPE over bytes, BPE over characters with byte tokens, and BERT's WordPiece.

A step of the file that is not supported here is refused by name, never ignored. Truncation and padding, which some files ask for, are left
to the caller.

    from_json("all-MiniLM-L6-v2/tokenizer.json").encode("Hello")        # [101, 7592, 102]
"""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...support.errors import ModelFileError, UnsupportedError
from .bpe import Bpe
from .json_spaces import space_prefix
from .split import KNOWN_PATTERNS, KNOWN_SETS, Kind, Splitter, kind
from .tokenizer import Model, Tokenizer
from .vocabulary import ENDS, TokenKind, Vocabulary
from .wordpiece import WordPiece

MAX_BYTES = 64 << 20  # several times the largest known files; bounds memory for a hostile file
MAX_TOKENS = 1 << 22  # far above the largest vocabularies
_NAME = "tokenizer.json"
_BYTES = dict.fromkeys(f"<0x{byte:02X}>" for byte in range(256))

Json = dict[str, Any]


def from_json(path: str | os.PathLike[str]) -> Tokenizer:
    """Returns the tokenizer of a file; raises ModelFileError if it cannot be read, UnsupportedError for steps that are not supported."""
    return from_json_text(json_file_text(path))


def json_file_text(path: str | os.PathLike[str]) -> str:
    """Returns the text of a tokenizer's file; raises ModelFileError if it cannot be read or is too large."""
    file = Path(path)
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ModelFileError(f"{_NAME}: the file is larger than {MAX_BYTES >> 20} MiB")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ModelFileError(f"{_NAME}: `{file}` cannot be read: {getattr(problem, 'strerror', None) or 'it is not UTF-8'}") from None


def from_json_text(text: str) -> Tokenizer:
    """Returns the tokenizer of the text of a file.

    Raises UnsupportedError for steps that are not supported, ModelFileError for text that is no tokenizer.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise ModelFileError(f"{_NAME}: the file is not JSON") from None
    root = _object(data, "the file")
    model = _object(root.get("model"), "`model`")
    read = {"BPE": _bpe, "WordPiece": _wordpiece}.get(_text(model.get("type", "BPE" if "merges" in model else ""), "`model.type`"))
    if read is None:
        raise UnsupportedError(f"{_NAME}: the model `{model.get('type')}` is not supported; BPE and WordPiece are")
    vocabulary = _vocabulary(root, model)
    return Tokenizer(vocabulary, read(root, model, vocabulary))


def _vocabulary(root: Json, model: Json) -> Vocabulary:
    """Returns the vocabulary with added tokens; raises ModelFileError for wrong token numbers, UnsupportedError for unsupported options."""
    ids = _object(model.get("vocab"), "`model.vocab`")
    added = [_object(entry, "an added token") for entry in _list(root.get("added_tokens") or [], "`added_tokens`")]
    numbers = {**ids, **{_text(entry.get("content"), "an added token"): entry.get("id") for entry in added}}
    if any(not isinstance(i, int) or isinstance(i, bool) or not 0 <= i < MAX_TOKENS for i in numbers.values()):
        raise ModelFileError(f"{_NAME}: the number of a token is not an integer from 0 to {MAX_TOKENS - 1}")
    size = max(numbers.values(), default=-1) + 1
    if size == 0 or size > 2 * len(numbers) + 1024:
        raise ModelFileError(f"{_NAME}: {len(numbers)} tokens have numbers up to {size - 1}")
    tokens, kinds = [""] * size, [int(TokenKind.UNUSED)] * size
    spelled = bool(model.get("byte_fallback"))  # bytes without a token of their character have tokens such as <0x0A>
    for text, i in ids.items():
        tokens[i], kinds[i] = text, int(TokenKind.BYTE if spelled and text in _BYTES else TokenKind.NORMAL)
    for entry in added:
        if entry.get("lstrip") or entry.get("single_word"):
            raise UnsupportedError(
                f"{_NAME}: the added token `{entry['content']}` asks for `lstrip` or `single_word`, which is not supported"
            )
        kinds[entry["id"]] = int(TokenKind.CONTROL if entry.get("special") else TokenKind.USER_DEFINED)
        tokens[entry["id"]] = entry["content"]
    unknown = model.get("unk_token")
    before, after = _around(root.get("post_processor"), numbers)
    ends = frozenset(entry["id"] for entry in added if entry["content"] in ENDS)
    strip = frozenset(entry["id"] for entry in added if entry.get("rstrip"))
    unk = None if unknown is None else numbers.get(_text(unknown, "`unk_token`"))
    return Vocabulary(tokens, kinds, before[0] if before else None, after[-1] if after else None, unk, before, after, ends, strip)


def _around(step: Any, ids: dict[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the tokens that the post-processor adds before and after a text; raises UnsupportedError for an unknown step."""
    if step is None:
        return (), ()
    step = _object(step, "`post_processor`")
    if step.get("type") == "Sequence":
        pairs = [_around(part, ids) for part in _list(step.get("processors"), "`processors`")]
        return tuple(i for before, _ in reversed(pairs) for i in before), tuple(i for _, after in pairs for i in after)
    if step.get("type") in ("BertProcessing", "RobertaProcessing"):
        return (_number(step.get("cls")),), (_number(step.get("sep")),)
    if step.get("type") == "TemplateProcessing":
        return _template([_object(part, "a part of a template") for part in _list(step.get("single"), "`single`")], ids)
    if step.get("type") == "ByteLevel":  # it only adjusts offsets, not tokens
        return (), ()
    raise _unknown("post_processor", step)


def _template(parts: list[Json], ids: dict[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the special tokens before and after the sequence of a template; raises ModelFileError unless it has one sequence."""
    names = [_text(_object(part["SpecialToken"], "a token").get("id"), "a token") if "SpecialToken" in part else None for part in parts]
    if names.count(None) != 1 or any(name is not None and name not in ids for name in names):
        raise ModelFileError(f"{_NAME}: the template of the post-processor is not one sequence among known tokens")
    at = names.index(None)
    return tuple(ids[n] for n in names[:at] if n is not None), tuple(ids[n] for n in names[at + 1 :] if n is not None)


def _wordpiece(root: Json, model: Json, vocabulary: Vocabulary) -> Model:
    normal, pre = _object(root.get("normalizer"), "`normalizer`"), _object(root.get("pre_tokenizer"), "`pre_tokenizer`")
    if normal.get("type") != "BertNormalizer" or pre.get("type") != "BertPreTokenizer":
        raise UnsupportedError(f"{_NAME}: WordPiece is supported with `BertNormalizer` and `BertPreTokenizer`")
    lowercase = normal.get("lowercase", True)
    accents = normal.get("strip_accents")
    if not (normal.get("clean_text", True) and normal.get("handle_chinese_chars", True)) or accents not in (None, lowercase):
        raise UnsupportedError(f"{_NAME}: these settings of `BertNormalizer` are not supported: {json.dumps(normal)[:200]}")
    limit = model.get("max_input_chars_per_word", 100)
    inner = _text(model.get("continuing_subword_prefix", "##"), "`continuing_subword_prefix`")
    return WordPiece(vocabulary, first="", inner=inner, lowercase=bool(lowercase), longest_word=min(_number(["", limit]), 1000))


def _bpe(root: Json, model: Json, vocabulary: Vocabulary) -> Model:
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise UnsupportedError(f"{_NAME}: `{key}` of BPE is not supported")
    merges = [_merge(entry) for entry in _list(model.get("merges"), "`model.merges`")]
    if model.get("byte_fallback"):
        if missing := next((name for name in _BYTES if name not in vocabulary.ids), None):
            raise UnsupportedError(f"{_NAME}: BPE with byte tokens needs all of them, and there is no `{missing}`")
        whole, prefix = bool(model.get("ignore_merges")), space_prefix(root)
        return Bpe(vocabulary, merges, Splitter(Kind(())), whole_words=whole, spelled_bytes=False, prefix=prefix)
    splitter = Splitter(_splits(root.get("pre_tokenizer")))
    return Bpe(vocabulary, merges, splitter, whole_words=bool(model.get("ignore_merges")), normalize=_normal(root.get("normalizer")))


def _merge(entry: Any) -> str:
    if isinstance(entry, list) and len(entry) == 2:
        return f"{_text(entry[0], 'a merge')} {_text(entry[1], 'a merge')}"
    return _text(entry, "a merge")


def _normal(step: Any) -> Callable[[str], str] | None:
    if step is None or _object(step, "`normalizer`") == {"type": "Sequence", "normalizers": []}:
        return None
    if step.get("type") != "NFC":
        raise _unknown("normalizer", step)
    return lambda text: unicodedata.normalize("NFC", text)


def _splits(step: Any) -> Kind:
    """Returns the patterns of the pre-tokenizer; raises UnsupportedError if it is not byte-level."""
    outer = _object(step, "`pre_tokenizer`")
    steps = _list(outer.get("pretokenizers"), "`pretokenizers`") if outer.get("type") == "Sequence" else [outer]
    patterns: list[str] = []
    spelled = False
    for inner in [_object(s, "a pre-tokenizer") for s in steps]:
        match inner.get("type"):
            case "ByteLevel" if not inner.get("add_prefix_space"):
                patterns += list(kind("gpt-2").patterns) if inner.get("use_regex", True) else []
                spelled = True
            case "Digits" if inner.get("individual_digits"):
                patterns.append(r"\p{N}")
            case "Split" if inner.get("behavior") == "Isolated" and not inner.get("invert"):
                patterns.append(_pattern(_object(inner.get("pattern"), "`pattern`")))
            case _:
                raise _unknown("pre_tokenizer", inner)
    if not spelled:
        raise UnsupportedError(f"{_NAME}: BPE without `ByteLevel` is not supported")
    return Kind(tuple(patterns), KNOWN_SETS)


def _pattern(pattern: Json) -> str:
    """Returns a pattern of the file if it is a known one; raises UnsupportedError otherwise: an unknown pattern could backtrack forever."""
    text = _text(pattern.get("Regex"), "a pattern").replace("\r", "\\r").replace("\n", "\\n")
    if text not in KNOWN_PATTERNS:
        raise UnsupportedError(f"{_NAME}: the pre-tokenizer has an unknown pattern", facts=[text[:300]])
    return KNOWN_PATTERNS[text]


def _unknown(what: str, step: Json) -> UnsupportedError:
    return UnsupportedError(f"{_NAME}: the {what} `{step.get('type')}` is not supported", facts=[json.dumps(step)[:300]])


def _object(value: Any, what: str) -> Json:
    if not isinstance(value, dict):
        raise ModelFileError(f"{_NAME}: {what} is not an object")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ModelFileError(f"{_NAME}: {what} is not a list")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ModelFileError(f"{_NAME}: {what} is not a string")
    return value


def _number(pair: Any) -> int:
    """Returns the token number in a pair such as `["[SEP]", 102]`; raises if it is no such pair."""
    if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], int)):
        raise ModelFileError(f"{_NAME}: a token with its number is expected, found {str(pair)[:80]}")
    return pair[1]
