"""How a `tokenizer.json` of BPE over characters spells spaces: as "▁", and mostly with one before a text (SentencePiece's BPE).

Llama 2, Mistral, Gemma and Phi 3 have such files. They say the same in three ways, by versions of the library that wrote them:

    normalizer Prepend "▁", Replace " " by "▁"       # always one, also before a space
    normalizer Replace " " by "▁"                    # none; a pre-tokenizer that cuts at spaces finds none
    pre-tokenizer Metaspace "▁" that does not cut    # by `prepend_scheme`: first, always or never

Any other step is refused by name.
"""

from __future__ import annotations

import json
from typing import Any

from ...support.errors import ModelFileError, UnsupportedError
from .bpe import SpacePrefix

_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
_PREPEND = {"type": "Prepend", "prepend": "▁"}
_SCHEMES = {"first": SpacePrefix(once=True), "always": SpacePrefix(), "never": None}


def space_prefix(root: dict[str, Any]) -> SpacePrefix | None:
    """Returns what is put before a text, None for nothing; raises UnsupportedError for steps of another kind."""
    normal, pre = _steps(root, "normalizer"), _steps(root, "pre_tokenizer")
    cuts = not pre or (len(pre) == 1 and pre[0].get("type") == "Split" and pre[0].get("pattern") == {"String": " "})
    if normal == [_PREPEND, _REPLACE] and cuts:
        return SpacePrefix(doubled=True)
    if normal == [_REPLACE] and cuts:
        return None
    if not normal and len(pre) == 1 and pre[0].get("type") == "Metaspace" and pre[0].get("replacement") == "▁":
        scheme = pre[0].get("prepend_scheme", "always" if pre[0].get("add_prefix_space", True) else "never")
        if pre[0].get("split") is False and scheme in _SCHEMES:
            return _SCHEMES[scheme]
    raise UnsupportedError(
        "tokenizer.json: these steps of BPE with byte tokens are not supported",
        facts=[f"{name}: {json.dumps(steps)[:300]}" for name, steps in (("normalizer", normal), ("pre_tokenizer", pre))],
    )


def _steps(root: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Returns the steps under a key, one after the other: none, one, or those of a sequence; raises ModelFileError for no objects."""
    step = root.get(name)
    if step is None:
        return []
    steps = (
        step.get({"normalizer": "normalizers"}.get(name, "pretokenizers"))
        if isinstance(step, dict) and step.get("type") == "Sequence"
        else [step]
    )
    if not isinstance(steps, list) or not all(isinstance(s, dict) for s in steps):
        raise ModelFileError(f"tokenizer.json: `{name}` is not an object, or a sequence of them")
    return steps
