"""The tensors of a checkpoint folder: `model.safetensors`, or the parts that `model.safetensors.index.json` lists. All are mapped.

    weights = open_weights(folder)
    weights.tensors["model.embed_tokens.weight"]     # a Stored tensor of a file
    weights.stamps                                   # the identity of each file

Files that Python's pickle reads (`pytorch_model.bin`) are never opened: a pickle is a program.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...support.errors import ModelFileError, UnsupportedError
from ..gguf.parse import shown
from ..gguf.reader import Stamp, stamp_of
from ..safetensors import Weights, load_safetensors
from .config import read_object

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_PARTS = 1024  # limits the number of files that a hostile index makes us open
_PICKLED = ("*.bin", "*.pt", "*.pth")


class FolderWeights(NamedTuple):
    """A record of the tensors of a folder by name, each in the mapped file that has it, and of these files' identities."""

    tensors: dict[str, Weights]
    stamps: tuple[Stamp, ...]

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor, outermost dim first."""
        return self.tensors[name].stored[name].shape

    def dtype(self, name: str) -> str:
        """Returns the name of a tensor's dtype: `bf16`, …"""
        return self.tensors[name].stored[name].dtype.name

    def raw(self, name: str) -> np.ndarray[Any, Any]:
        """Returns the bytes of a tensor, u8[bytes]."""
        return self.tensors[name].raw(name)

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """Returns the elements of a tensor, read-only."""
        return self.tensors[name][name]


def open_weights(folder: Path) -> FolderWeights:
    """Maps the weights of a folder; raises ModelFileError if files are missing or malformed, or do not fit the index.

    Raises UnsupportedError for a folder that has pickled weights only.
    """
    if (folder / WHOLE).exists():
        return _opened([folder / WHOLE])
    if (folder / INDEX).exists():
        return _parts(folder)
    if pickled := next((path for pattern in _PICKLED for path in sorted(folder.glob(pattern))), None):
        raise UnsupportedError(
            f"`{shown(pickled.name)}` is not read: unpickling a file can run any program",
            facts=[f"folder `{folder}`", f"expected: `{WHOLE}`, or `{INDEX}` with its parts"],
            help="save the model as safetensors where you trust it: model.save_pretrained(folder)",
        )
    raise ModelFileError(f"`{folder}` has no weights", facts=[f"expected: `{WHOLE}`, or `{INDEX}` with its parts"])


def _parts(folder: Path) -> FolderWeights:
    """Maps the parts that the index lists; raises ModelFileError unless each has exactly the tensors that the index says."""
    table = read_object(folder / INDEX).get("weight_map")
    if not isinstance(table, dict) or not table or not all(isinstance(part, str) for part in table.values()):
        raise ModelFileError(f"{INDEX}: `weight_map` is not a table of tensors and their files")
    names = sorted(set(table.values()))
    if len(names) > MAX_PARTS:
        raise ModelFileError(f"{INDEX}: {len(names)} parts; {MAX_PARTS} are allowed")
    for part in names:
        if not part.endswith(".safetensors") or part != os.path.basename(part) or "\\" in part or "\0" in part:
            raise ModelFileError(f"{INDEX}: `{shown(part)}` is not the name of a safetensors file in the folder")
        if not (folder / part).exists():
            raise ModelFileError(f"part `{shown(part)}` of the weights is missing", facts=[f"{len(names)} parts are needed in `{folder}`"])
    found = _opened([folder / part for part in names])
    there = {name: os.path.basename(weights.path) for name, weights in found.tensors.items()}
    for name in table.keys() | there.keys():
        if table.get(name) != there.get(name):
            places = f"in `{shown(str(there.get(name)))}`, and the index says `{shown(str(table.get(name)))}`"
            raise ModelFileError(f"{INDEX}: tensor `{shown(name)}` is {places}")
    return found


def _opened(paths: list[Path]) -> FolderWeights:
    """Maps files; raises ModelFileError if one is malformed, or if two have a tensor of the same name."""
    tensors: dict[str, Weights] = {}
    stamps = []
    for path in paths:
        stamps.append(stamp_of(path, os.stat(path)))
        weights = load_safetensors(path)
        if both := next((name for name in weights if name in tensors), None):
            raise ModelFileError(f"tensor `{shown(both)}` is in two parts of the weights", facts=[f"one of them is `{path}`"])
        tensors |= dict.fromkeys(weights, weights)
    return FolderWeights(tensors, tuple(stamps))
