"""Builds the tokenizer of a checkpoint folder: `tokenizer.json`, and the special tokens that the files beside it name.

from_folder("my-llama/").ends        # the tokens after which generation stops, by generation_config.json and others

`tokenizer_config.json` names bos and eos (without that file, `config.json` does) and may say whether they are put around a text, else
`tokenizer.json` says it. Ends are those of `generation_config.json` and `config.json`, the eos token, and special tokens whose text is
known to end a turn.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...frontends.checkpoint.config import Config
from ...support.errors import ModelFileError
from .from_json import MAX_TOKENS, from_json
from .tokenizer import Tokenizer
from .vocabulary import TokenKind

_FILES = ("tokenizer_config.json", "generation_config.json", "config.json")


def from_folder(folder: str | os.PathLike[str]) -> Tokenizer:
    """Returns the tokenizer of a folder.

    Raises ModelFileError if a file is missing or broken or names a token that is not there, UnsupportedError for unsupported steps.
    """
    place = Path(folder)
    if not (place / "tokenizer.json").exists():
        raise ModelFileError(
            f"`{place}` has no tokenizer.json",
            help="save it with transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)",
        )
    tokenizer = from_json(place / "tokenizer.json")
    own, generation, model = (Config.read(place / name) if (place / name).exists() else Config({}, name) for name in _FILES)
    known = tokenizer.vocabulary
    usual = {side: [] if own.values else _numbers(model, f"{side}_token_id")[:1] for side in ("bos", "eos")}
    bos, eos = (_named(own, f"{side}_token", tokenizer, usual[side]) for side in ("bos", "eos"))
    ends = {*known.ends, *_numbers(generation, "eos_token_id"), *_numbers(model, "eos_token_id"), *([] if eos is None else [eos])}
    rest = max(0, model.integer("vocab_size", 0, high=MAX_TOKENS) - len(tokenizer))  # models pad their vocabulary: such tokens say nothing
    vocabulary = replace(
        known,
        tokens=[*known.tokens, *[""] * rest],
        kinds=[*known.kinds, *[int(TokenKind.UNUSED)] * rest],
        bos=bos,
        eos=eos,
        before=_around(own, "add_bos_token", bos, known.before),
        after=_around(own, "add_eos_token", eos, known.after),
        ends=frozenset(ends),
    )
    return Tokenizer(vocabulary, tokenizer.model)


def _named(config: Config, key: str, tokenizer: Tokenizer, usual: list[int]) -> int | None:
    """Returns the number of the token that the config names under a key, a text or an object with one; else the usual one, or None."""
    found = config.get(key)
    text = found.get("content") if isinstance(found, dict) else found
    if text is None:
        return usual[0] if usual else None
    if not isinstance(text, str) or text not in tokenizer.vocabulary.tokens:
        raise config.wrong(key, "a token of the vocabulary")
    return tokenizer.vocabulary.tokens.index(text)


def _numbers(config: Config, key: str) -> list[int]:
    """Returns the token numbers under a key, which has one or a list; raises ModelFileError for anything else."""
    found: Any = config.get(key)
    numbers: list[Any] = [] if found is None else found if isinstance(found, list) else [found]
    if any(isinstance(i, bool) or not isinstance(i, int) for i in numbers):
        raise config.wrong(key, "a token number, or a list of them")
    return numbers


def _around(config: Config, key: str, token: int | None, usual: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the tokens on a side of a text: the given one or none if the config says so, else the usual ones of tokenizer.json."""
    if config.get(key) is None:
        return usual
    return (token,) if config.flag(key) and token is not None else ()
