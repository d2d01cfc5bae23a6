"""Language models as pages: `pliant export smollm2-135m --target web -o chat/` writes a folder whose page chats in any browser.

    export_page("smollm2-135m", "chat/")                  # or a path to a .gguf file, or hf:org/repo:quant

Beside the program there is `NAME.chat.json`: the tokenizer, the chat template as a tree (`template_tree.py`), and the shape of the cache.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..exporting import export_with_chat
from ..frontends.gguf import GgufFile, open_gguf
from ..support.errors import Error, UnsupportedError
from .catalog import CATALOGUE
from .chat_template import ChatTemplate
from .kv_cache import PAGE, run_of
from .locate import locate
from .template_tree import template_tree
from .tokenizer import Tokenizer, from_gguf
from .tokenizer.bpe import Bpe
from .tokenizer.classes import set_ranges
from .tokenizer.split import kind as splitter_kind

CONTEXT = 2048  # tokens of a conversation in a page, unless the model was trained for fewer: their cache is made when the page starts
_SPACE = r"\t-\r \x85\p{Z}"  # what Unicode calls white space; `\s` of JavaScript is another set
_CLASS = re.compile(r"\\p\{(\w+)\}|\\([sS])|\\Z|\\.|\[\^?|\]|.", re.DOTALL)
_ANY_CASE = re.compile(r"\(\?i:([^()]*)\)")


def speaks(source: str) -> bool:
    """True if the name or path is that of a language model: one of the catalog that makes no embeddings, `hf:…`, or a `.gguf` file."""
    known = CATALOGUE.get(source)
    return (known is not None and not known.embeds) or source.startswith("hf:") or source.endswith(".gguf")


def export_page(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    context: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Path]:
    """Writes a language model as a page that chats into the folder `path`; returns the files.

    `name` is the base of their names, by default that of the model. `context` is the largest number of tokens of a conversation, by default
    2048 or what the model was made for, if that is less; raises an Error for more than that. Raises UnsupportedError for a tokenizer that
    pages do not have.
    """
    import pliant

    from .models import build

    file = open_gguf(locate(source, progress=progress))
    tokenizer = _tokenizer_facts(from_gguf(file), file)  # refused before the model is compiled
    model = build(file, pliant.f16)
    s = model.settings
    longest = min(s.context, CONTEXT) if context is None else context
    if not 1 <= longest <= s.context:
        raise Error(f"`context` is {context}; the model was made for 1 to {s.context} tokens")
    run = run_of(s.kv_heads, s.cache_dim, 2)
    pages = -(-longest // PAGE)
    head = [-(-pages // run), s.layers, run, s.kv_heads]
    facts = {
        "context": longest,
        "page": PAGE,
        "cache": {"keys": [*head, s.cache_dim, PAGE], "values": [*head, PAGE, s.cache_dim]},
        **tokenizer,
    }
    base = name or Path(os.fspath(source).rpartition(":")[2]).name.removesuffix(".gguf")
    return export_with_chat(model.to_program(), path, base, json.dumps(facts, separators=(",", ":")).encode())


def _tokenizer_facts(tokenizer: Tokenizer, file: GgufFile) -> dict[str, Any]:
    """Returns what a page needs to encode conversations and to decode answers: tokenizer and chat template (a tree; None without one).

    Raises UnsupportedError unless the tokenizer is a byte-level BPE, and ModelFileError for a template that is broken.
    """
    model, v = tokenizer.model, tokenizer.vocabulary
    if not isinstance(model, Bpe) or not model.spelled_bytes:
        raise UnsupportedError(
            f"gguf: pages have no tokenizer of the kind `{file.text('tokenizer.ggml.model')}`",
            facts=[f"file `{file.name}`", "supported: byte-level BPE (gpt2)"],
        )
    template = ChatTemplate.from_gguf(file, tokenizer)  # compiled once: a broken template is refused here
    kind = splitter_kind(file.text("tokenizer.ggml.pre", "default"))
    facts = {
        "tokens": list(v.tokens),
        "kinds": [int(k) for k in v.kinds],
        "merges": [pair for pair, _ in sorted(model.ranks.items(), key=lambda item: item[1])],
        "patterns": [javascript_pattern(p, dict(kind.sets)) for p in kind.patterns],
        "whole_words": model.whole_words,
        "unknown": v.unknown,
        "before": list(v.before),
        "after": list(v.after),
        "ends": sorted(v.ends),
        "strip_after": sorted(v.strip_after),
    }
    return {
        "tokenizer": facts,
        "template": None if template is None else template_tree(template.source),
        "names": {} if template is None else template.tokens,
    }


def javascript_pattern(pattern: str, sets: dict[str, str]) -> str:
    r"""Returns a pattern of `tokenizer/split.py` as JavaScript writes it for the flag `u`, for the same matches.

    Named sets, given with their members, and white space become classes, `(?i:…)` becomes classes of both cases, and `\Z` becomes `$`.
    """
    pattern = _ANY_CASE.sub(lambda m: f"(?:{re.sub('[a-z]', lambda c: f'[{c[0]}{c[0].upper()}]', m[1])})", pattern)
    parts, inside = [], False
    for token in _CLASS.finditer(pattern):
        part = token[0]
        if part in ("[", "[^", "]"):
            inside = part != "]"
        elif part == r"\Z":
            part = "$"
        elif token[2] or token[1] in sets:
            members = _SPACE if token[2] else "".join(rf"\u{{{a:x}}}-\u{{{b:x}}}" for a, b in set_ranges(sets[token[1]]) if a <= b)
            part = members if inside else f"[{'^' if token[2] == 'S' else ''}{members}]"
        elif inside and part in ("(", ")", "|", "/", "{", "}"):
            part = "\\" + part
        elif part[0] == "\\" and part[1] in "<>=~`#&@!%\"',:;":
            part = part[1:]
        parts.append(part)
    return "".join(parts)
