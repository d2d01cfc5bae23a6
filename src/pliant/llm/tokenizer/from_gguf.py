"""Builds the tokenizer of a GGUF file from its `tokenizer.ggml.*` metadata.

from_gguf(open_gguf("model.gguf")).encode("Hello")
"""

from __future__ import annotations

from ...frontends.gguf import GgufFile
from ...frontends.gguf.parse import shown
from ...support.errors import ModelFileError, UnsupportedError
from .bpe import Bpe
from .sentencepiece import SentencePiece
from .split import kind, words
from .tokenizer import Model, Tokenizer
from .vocabulary import ENDS, TokenKind, Vocabulary
from .wordpiece import WordPiece

_KEY = "tokenizer.ggml."
_MODELS = ("gpt2", "llama", "bert", "gemma4")
MAX_TOKENS = 1 << 22  # far above the largest vocabularies (about 256 thousand); bounds the work for a hostile file


def from_gguf(file: GgufFile) -> Tokenizer:
    """Returns the tokenizer of a model file.

    Raises UnsupportedError for unknown kinds, ModelFileError for a broken vocabulary.
    """
    name = file.text(_KEY + "model")
    if name not in _MODELS:
        raise UnsupportedError(f"tokenizer: the kind `{shown(name)}` is not supported", facts=["supported: " + ", ".join(_MODELS)])
    tokens = file.strings(_KEY + "tokens")
    if not 0 < len(tokens) <= MAX_TOKENS:
        raise ModelFileError(f"tokenizer: a vocabulary of {len(tokens)} tokens; 1 to {MAX_TOKENS} are allowed")
    pre = "gemma4" if name == "gemma4" else file.text(_KEY + "pre", "default")
    vocabulary = _vocabulary(file, name, tokens, add_bos=name != "gpt2" or kind(pre).add_bos)
    return Tokenizer(vocabulary, _model(file, name, pre, vocabulary))


def _model(file: GgufFile, name: str, pre: str, vocabulary: Vocabulary) -> Model:
    if name == "bert":
        return WordPiece(vocabulary, first="▁", inner="")
    if name == "llama":
        scores = file.numbers(_KEY + "scores").tolist()
        return SentencePiece(vocabulary, scores, space_prefix=file.flag(_KEY + "add_space_prefix", True))
    merges = file.strings(_KEY + "merges")
    return Bpe(vocabulary, merges, words(pre), whole_words=kind(pre).whole_words, spelled_bytes=name == "gpt2")


def _vocabulary(file: GgufFile, name: str, tokens: list[str], *, add_bos: bool) -> Vocabulary:
    """Reads tokens, kinds and special tokens; uses the usual token numbers of a kind if the file has none.

    `add_bos` is the default for whether a text begins with the bos token.
    """

    def token(key: str, default: int | None = None) -> int | None:
        return file.integer(f"{_KEY}{key}_token_id", high=len(tokens) - 1) if f"{_KEY}{key}_token_id" in file.metadata else default

    defaults = {"llama": (1, 2, 0), "bert": (101, None, 100)}.get(name, (None, None, None))
    if max((d for d in defaults if d is not None), default=0) >= len(tokens):
        defaults = (None, None, None)  # the vocabulary is too small for the usual token numbers
    bos, eos, unknown = (token(key, default) for key, default in zip(("bos", "eos", "unknown"), defaults, strict=True))
    begin = token("cls", bos) if name == "bert" else bos
    end = token("seperator", token("separator", 102 if len(tokens) > 102 else None)) if name == "bert" else eos
    before = file.flag(_KEY + "add_bos_token", add_bos)
    after = file.flag(_KEY + "add_eos_token", name == "bert") or name == "bert"
    kinds = _kinds(file, len(tokens))
    return Vocabulary(
        tokens,
        kinds,
        bos,
        eos,
        unknown,
        (begin,) if before and begin is not None else (),
        (end,) if after and end is not None else (),
        _ends(tokens, kinds, (eos, token("eot"), token("eom"))),
        _strip_after(file, tokens, kinds),
    )


def _kinds(file: GgufFile, count: int) -> list[int]:
    if _KEY + "token_type" not in file.metadata:
        return [int(TokenKind.NORMAL)] * count
    stored = file.numbers(_KEY + "token_type")
    if stored.dtype.kind not in "iu":
        raise ModelFileError("tokenizer: the kinds of tokens are not integers")
    kinds: list[int] = stored.tolist()
    return kinds


def _ends(tokens: list[str], kinds: list[int], named: tuple[int | None, ...]) -> frozenset[int]:
    """Returns the end tokens: those that the file names, and special tokens whose text is known to end a turn."""
    special = (TokenKind.CONTROL, TokenKind.USER_DEFINED)
    known = (i for i, (text, kind) in enumerate(zip(tokens, kinds, strict=False)) if kind in special and text in ENDS)
    return frozenset([i for i in named if i is not None] + list(known))


def _strip_after(file: GgufFile, tokens: list[str], kinds: list[int]) -> frozenset[int]:
    """Returns the special tokens that absorb white space after them: those of phi-3 models, for which GGUF has no key."""
    name = file.text("general.name", "").lower()
    if "phi-3" not in name and "phi3" not in name:
        return frozenset()
    special = (TokenKind.CONTROL, TokenKind.USER_DEFINED)
    plain = ("<unk>", "<s>", "<|endoftext|>")
    return frozenset(i for i, (text, kind) in enumerate(zip(tokens, kinds, strict=False)) if kind in special and text not in plain)
