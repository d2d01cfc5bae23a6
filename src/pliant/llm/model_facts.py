"""What a GGUF file or a checkpoint folder says of its model, and what Pliant makes of it. Nothing is computed or compiled.

facts = model_facts(open_model("model.gguf"))
facts["memory"]        # [{"context": 2048, "weights": …, "cache": …}, …]; empty with a "problem" if the model is not supported
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..frontends.checkpoint import Checkpoint
from ..frontends.gguf import GgufFile
from ..support.errors import Error
from ..support.units import in_bytes
from .model_file import tokenizer_of

CONTEXTS = (2048, 8192, 32768)  # tokens at which memory is shown, as far as the model goes


def model_facts(file: GgufFile) -> dict[str, Any]:
    """Returns the facts of a model file as a dict, ready for JSON.

    If the model is not supported, `problem` is the text of the error and `memory` is empty; else `problem` is empty.
    """
    sizes: Counter[str] = Counter()
    for tensor in file.tensors.values():
        sizes[tensor.format.name] += tensor.size
    template = file.metadata.get("tokenizer.chat_template")
    facts: dict[str, Any] = {
        "file": file.name,
        "bytes": sum(sizes.values()),
        "name": _text(file, "general.name"),
        "licence": _text(file, "general.license"),
        "architecture": _text(file, "general.architecture"),
        "settings": _settings(file),
        "quantization": dict(sizes.most_common()),
        "tokenizer": _tokenizer(file),
        "template": template if isinstance(template, str) else None,
        "tensors": [
            {"name": t.name, "dtype": t.format.name, "shape": list(t.shape), "bytes": t.size} for t in file.tensors.values()
        ],
        "memory": [],
        "problem": "",
    }  # fmt: skip
    try:
        facts["memory"] = _memory(file, facts["bytes"])
    except Error as error:
        facts["problem"] = str(error)
    return facts


def _text(file: GgufFile, key: str) -> str:
    """Returns the text that the metadata have under a key; empty if there is none or it is no text."""
    value = file.metadata.get(key)
    return value if isinstance(value, str) else ""


def _settings(file: GgufFile) -> dict[str, Any]:
    """Returns the numbers and texts of the architecture by name, without its prefix: `context_length`, `block_count`, …"""
    prefix = _text(file, "general.architecture") + "."
    return {k.removeprefix(prefix): v for k, v in file.metadata.items() if k.startswith(prefix) and isinstance(v, int | float | str)}


def _tokenizer(file: GgufFile) -> dict[str, Any]:
    """Returns the kind of the tokenizer, how it splits words, how many tokens it has, and the texts of bos and eos (None if not known)."""
    if isinstance(file, Checkpoint):
        return _tokenizer_of_folder(file)
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    facts: dict[str, Any] = {"model": _text(file, "tokenizer.ggml.model"), "words": _text(file, "tokenizer.ggml.pre")}
    facts["tokens"] = len(tokens) if isinstance(tokens, list) else 0
    ids = {name: file.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
    for name, number in ids.items():
        known = isinstance(tokens, list) and isinstance(number, int) and 0 <= number < len(tokens)
        facts[name] = tokens[number] if known else None  # type: ignore[index]
    return facts


def _tokenizer_of_folder(file: Checkpoint) -> dict[str, Any]:
    """Returns the same of a checkpoint folder; the kind is empty if the tokenizer is not supported."""
    try:
        tokenizer = tokenizer_of(file)
    except Error:
        return {"model": "", "words": "", "tokens": 0, "bos": None, "eos": None}
    named = {name: None if i is None else tokenizer.vocabulary.tokens[i] for name, i in (("bos", tokenizer.bos), ("eos", tokenizer.eos))}
    return {"model": type(tokenizer.model).__name__, "words": "", "tokens": len(tokenizer), **named}


def _memory(file: GgufFile, weights: int) -> list[dict[str, int]]:
    """Returns the bytes of the weights and of the f16 KV cache at the contexts CONTEXTS and at the model's own; none is longer than that.

    Raises an Error if the model or its tokenizer is not supported.
    """
    from ..dtype import f16
    from .models import build

    settings = build(file, f16).settings
    tokenizer_of(file)
    token = 2 * settings.layers * settings.kv_heads * settings.cache_dim * 2
    contexts = dict.fromkeys(min(c, settings.context) for c in (*CONTEXTS, settings.context))
    return [{"context": c, "weights": weights, "cache": c * token} for c in contexts]


def model_text(facts: dict[str, Any]) -> str:
    """Returns the facts of `model_facts` as lines of text for the terminal."""
    s, t = facts["settings"], facts["tokenizer"]
    shown = [f"{s[key]} {what}" for key, what in _SETTINGS.items() if key in s]
    lines = [f"{facts['file']}: {in_bytes(facts['bytes'])} of weights" + (f", licence {facts['licence']}" if facts["licence"] else "")]
    lines.append(f"{facts['name'] or 'a model'}: architecture {facts['architecture']}" + (f", {', '.join(shown)}" if shown else ""))
    kinds = ", ".join(f"{name} {in_bytes(size)}" for name, size in facts["quantization"].items())
    lines.append(f"{len(facts['tensors'])} tensors: {kinds}")
    ends = ", ".join(f"{name} {t[name]!r}" for name in ("bos", "eos") if t[name])
    lines.append(
        f"tokenizer: {t['model']}{f' ({words})' if (words := t['words']) else ''}, {t['tokens']} tokens{f', {ends}' if ends else ''}"
    )
    template = facts["template"]
    lines.append("chat template: none, so it continues texts" if template is None else f"chat template: {len(template)} characters")
    for m in facts["memory"]:
        total = in_bytes(m["weights"] + m["cache"])
        lines.append(f"memory at a context of {m['context']}: {total}, of which the KV cache has {in_bytes(m['cache'])}")
    return "\n".join([*lines, *([facts["problem"]] if facts["problem"] else [])])


# A key of the settings -> what it counts.
_SETTINGS = {
    "context_length": "tokens of context",
    "block_count": "layers",
    "embedding_length": "wide",
    "attention.head_count": "heads",
    "attention.head_count_kv": "KV heads",
}
