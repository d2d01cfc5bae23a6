"""Language models as `pliant.nn` programs, one file for each family of architectures.

    model = build(open_gguf("model.gguf"))       # an nn.Module: pliant.compile(model)

A family's file reads its settings from the metadata and says what a layer does; `parts.py` has what they share.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...frontends.gguf import GgufFile
from ...support.errors import UnsupportedError
from .known import check_keys, check_tensors

FAMILIES = {
    "llama": "llama",
    "qwen2": "qwen",
    "qwen3": "qwen",
    "gemma2": "gemma",
    "gemma3": "gemma",
    "phi3": "phi",
}  # general.architecture: the file


def build(file: GgufFile, cache: Any = None) -> Any:
    """The module of a model; `cache` is the dtype of keys and values."""
    family = FAMILIES.get(file.architecture)
    if family is None:
        raise UnsupportedError(
            f"gguf: models of the architecture `{file.architecture}` are not supported",
            facts=[f"file `{file.name}`", f"supported: {', '.join(sorted(FAMILIES))}"],
        )
    check_keys(file)
    model = import_module(f".{family}", __name__).build(file, cache)
    check_tensors(file)
    return model
