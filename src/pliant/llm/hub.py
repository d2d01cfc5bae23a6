"""Downloads GGUF models from the Hugging Face hub: `hf:org/repo`, `hf:org/repo:Q4_K_M`, `hf:org/repo/file.gguf`.

Files are in the hub's own cache, in its layout (`models--org--repo/{blobs,refs,snapshots}`), so downloads are shared with other programs
in both directions. If the file is there, nothing is requested from the network.

    parse("hf:org/repo:Q8_0").find() -> Path | None;  .pull(print) -> Path

Settings are the usual ones: HF_TOKEN (or the token file of `hf auth login`), HF_ENDPOINT, HF_HUB_OFFLINE, HF_HOME, HF_HUB_CACHE.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..frontends.gguf.parse import shown
from ..support.errors import Error, ModelFileError
from ..support.record import dataclass
from .download import Progress, download, make_folder
from .http import DownloadError, page

PUBLIC = "https://huggingface.co"
# Preference if a repository has several quantizations: best quality for its size first.
_PREFERRED = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "Q5_K_M", "Q8_0", "IQ4_XS", "Q6_K", "BF16", "F16", "F32")
_NAME = re.compile(r"hf:(?P<repo>[\w][\w.-]*/[\w][\w.-]*)(?:/(?P<file>[\w./ -]+\.gguf)|:(?P<quant>[\w.-]+))?")
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class Remote:
    """A record of a file in a hub repository: its path and size, and its checksum if it is a large (LFS) file."""

    path: str
    size: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model of the Hugging Face hub: a repository, and a file or a quantization in it."""

    repo: str
    file: str | None = None
    quant: str | None = None

    @property
    def name(self) -> str:
        """The name of the model as users write it: `hf:org/repo…`."""
        return f"hf:{self.repo}" + (f"/{self.file}" if self.file else f":{self.quant}" if self.quant else "")

    @property
    def folder(self) -> Path:
        """The repository's folder in the hub's cache on disk."""
        return hub_cache() / ("models--" + self.repo.replace("/", "--"))

    def find(self) -> Path | None:
        """Returns the cached file of the newest snapshot that has all of its parts; None if there is none."""
        for snapshot in self._snapshots():
            there = [p.relative_to(snapshot).as_posix() for p in snapshot.rglob("*.gguf") if p.exists()]
            chosen = _choose(there, self.file, self.quant)
            if chosen and all((snapshot / path).exists() for path in parts(chosen)):
                return snapshot / chosen
        return None

    def pull(self, say: Progress, announce: Callable[[str], None]) -> Path:
        """Downloads the file unless it is cached; calls `announce` with its size and license first. Returns its path.

        Raises ModelFileError if the repository has no such file, or if HF_HUB_OFFLINE is set.
        """
        if cached_file := self.find():
            return cached_file
        if is_offline():
            raise self.absent("HF_HUB_OFFLINE is set")
        commit, licence, files = self._ask()
        chosen = _choose(list(files), self.file, self.quant)
        if chosen is None:
            raise ModelFileError(
                f"`{self.repo}` has no such GGUF file",
                facts=["it has: " + (shown(", ".join(sorted(files)), 1000) or "none")],
                help="hf:org/repo:Q4_K_M",
            )
        needed = [files[path] for path in parts(chosen) if path in files]
        if len(needed) != len(parts(chosen)):
            raise ModelFileError(f"`{self.repo}` has not all parts of `{chosen}`")
        total = sum(remote.size or 0 for remote in needed)
        announce(f"{self.name}: {shown(chosen)}, {total / 1e6:.0f} MB, licence: {shown(licence)}")
        for remote in needed:
            self._fetch(commit, remote, say)
        self._refer(commit)
        return self.folder / "snapshots" / commit / chosen

    def absent(self, why: str) -> Error:
        """Returns the ModelFileError for a file that is not cached and must not be downloaded."""
        where = self.folder / "snapshots" / "main" / (self.file or "NAME.gguf")
        return ModelFileError(
            f"`{self.name}` is not on this machine, and {why}",
            facts=[f"looked in `{self.folder}`"],
            help=f"fetch it where there is a network, and put the file at `{where}`, or give its path",
        )

    def _snapshots(self) -> list[Path]:
        """Returns the cached snapshots: that of the branch `main` first, then the newest."""
        folder = self.folder / "snapshots"
        main = None
        with suppress(OSError, UnicodeDecodeError):
            main = (self.folder / "refs" / "main").read_text().strip()
        with suppress(OSError):
            newest = sorted((p for p in folder.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime, reverse=True)
            return sorted(newest, key=lambda p: p.name != main)
        return []

    def _ask(self) -> tuple[str, str, dict[str, Remote]]:
        """Asks the hub for the commit of `main`, the license, and the GGUF files.

        Raises DownloadError if the untrusted answer is not valid.
        """
        url = f"{endpoint()}/api/models/{self.repo}/revision/main?blobs=true"
        _, text = page(url, token=token(), accept="application/json")
        try:
            answer = json.loads(text)
            files = {f["rfilename"]: _remote(f) for f in answer["siblings"] if str(f["rfilename"]).endswith(".gguf")}
            licence = str((answer.get("cardData") or {}).get("license") or "not stated")
            commit = str(answer["sha"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise DownloadError(f"the answer of `{endpoint()}` for `{self.repo}` is not that of a hub") from None
        if not re.fullmatch(r"[0-9a-f]{7,64}", commit) or any(not _is_safe(path) for path in files):
            raise DownloadError(f"the answer of `{endpoint()}` for `{self.repo}` names files outside of the repository")
        return commit, licence, files

    def _fetch(self, commit: str, remote: Remote, say: Progress) -> None:
        """Downloads a file into the cache: a blob named by its checksum, and a symbolic link to it in the snapshot."""
        url = f"{endpoint()}/{self.repo}/resolve/{commit}/{quote(remote.path)}"
        link = self.folder / "snapshots" / commit / remote.path
        make_folder(link.parent)
        if remote.sha256 is None:
            download(url, link, sha256=None, size=remote.size, token=token(), progress=say)
            return
        blob = download(url, self.folder / "blobs" / remote.sha256, sha256=remote.sha256, size=remote.size, token=token(), progress=say)
        with suppress(OSError):
            (blob.with_name(blob.name + ".lock")).unlink()
        if not link.exists():
            try:
                link.symlink_to(os.path.relpath(blob, link.parent))
            except OSError:  # no symbolic links on this system: move the file itself
                os.replace(blob, link)

    def _refer(self, commit: str) -> None:
        refs = self.folder / "refs"
        make_folder(refs)
        fresh = refs / f"main.{os.getpid()}"
        fresh.write_text(commit)
        os.replace(fresh, refs / "main")


def parse(name: str) -> HubModel:
    """Parses `hf:org/repo…`; raises ModelFileError for anything else."""
    match = _NAME.fullmatch(name)
    if match is None or (match["file"] and not _is_safe(match["file"])):
        raise ModelFileError(f"`{name}` is not the name of a model", help="hf:org/repo, hf:org/repo:Q4_K_M or hf:org/repo/file.gguf")
    return HubModel(match["repo"], match["file"], match["quant"])


def parts(path: str) -> list[str]:
    """Returns all files of a model: one, or every part of a split one."""
    match = _PART.fullmatch(path)
    if match is None:
        return [path]
    return [f"{match['stem']}-{i:05}-of-{match['count']}.gguf" for i in range(1, min(int(match["count"]), 1024) + 1)]


def cached() -> list[Path]:
    """Returns the GGUF models in the hub's cache, also those that other programs downloaded."""
    files = sorted(hub_cache().glob("models--*/snapshots/*/**/*.gguf"))
    return [p for p in files if p.exists() and (_PART.fullmatch(p.name) is None or p.name == parts(p.name)[0])]


def hub_cache() -> Path:
    """Returns the folder in which the Hugging Face hub caches files."""
    if chosen := os.environ.get("HF_HUB_CACHE"):
        return Path(chosen).expanduser()
    return _home() / "hub"


def endpoint() -> str:
    """Returns the URL of the Hugging Face hub, or of its mirror."""
    return (os.environ.get("HF_ENDPOINT") or PUBLIC).rstrip("/")


def token() -> str | None:
    """Returns the user's token from HF_TOKEN or from the file that `hf auth login` writes; None if there is none."""
    if value := os.environ.get("HF_TOKEN", "").strip():
        return value
    with suppress(OSError, UnicodeDecodeError):
        return Path(os.environ.get("HF_TOKEN_PATH") or _home() / "token").read_text().strip() or None
    return None


def is_offline() -> bool:
    """True if HF_HUB_OFFLINE forbids network access."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def _home() -> Path:
    if chosen := os.environ.get("HF_HOME"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "huggingface"
    except RuntimeError:
        raise Error("there is no place for models of the hub: no home folder", help="set HF_HOME to a folder that can be written") from None


def _remote(entry: dict[str, Any]) -> Remote:
    large = entry.get("lfs") or {}
    sha256, size = large.get("sha256"), entry.get("size", large.get("size"))
    if sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", str(sha256)):
        raise ValueError("no checksum")
    return Remote(str(entry["rfilename"]), size if isinstance(size, int) and size >= 0 else None, sha256)


def _is_safe(path: str) -> bool:
    """True if a path stays inside the repository (no `..`, no absolute path)."""
    return not path.startswith("/") and "\\" not in path and ":" not in path and all(p not in ("", ".", "..") for p in path.split("/"))


def _choose(paths: Sequence[str], file: str | None, quant: str | None) -> str | None:
    """Returns the file that is meant: the named one, the one of the given quantization, else the preferred one; None if there is none."""
    if file is not None:
        return file if file in paths else None
    models = sorted(p for p in paths if "mmproj" not in p.lower() and (_PART.fullmatch(p) is None or p == parts(p)[0]))
    for wanted in [quant] if quant else _PREFERRED:
        matching = re.compile(rf"(?<![A-Za-z0-9]){re.escape(wanted)}(?![A-Za-z0-9_])", re.IGNORECASE)
        if candidates := [p for p in models if matching.search(p)]:
            return min(candidates, key=lambda p: (len(p), p))
    return models[0] if models and not quant else None
