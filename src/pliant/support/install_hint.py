"""The command that adds an optional part of Pliant (an extra of pyproject.toml) to the copy that runs.

    install_hint("onnx")    # from an index:                      pip install 'pliant[onnx]'
                            # from the checkout that is the cwd:  pip install '.[onnx]'
                            # from another one, in editable mode: pip install -e '/home/me/pliant[onnx]'

A requirement that names an index finds another copy, or none, where this one was installed from a folder or an address. pip notes in
direct_url.json (PEP 610) what it installed from. Import this module where a package is missing: what it imports takes a while.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

_SOURCE = Path(__file__).parents[3]  # the checkout, if the package is not installed but runs from its source


def install_hint(extra: str) -> str:
    """Returns a pip command that installs what the extra needs, beside the copy of Pliant that runs."""
    if (_SOURCE / "pyproject.toml").is_file() and (_SOURCE / "src" / "pliant").is_dir():
        return f"pip install -e {_quoted(f'{_from_here(_SOURCE)}[{extra}]')}"
    url, folder = _origin()
    if folder is not None and (folder / "pyproject.toml").is_file():
        return f"pip install {_quoted(f'{_from_here(folder)}[{extra}]')}"
    if folder is not None:  # it is gone: what the extra asks for, which needs no source
        return f"pip install {' '.join(map(_quoted, _requirements(extra)))}"
    return f"pip install {_quoted(f'pliant[{extra}] @ {url}' if url else f'pliant[{extra}]')}"


def _origin() -> tuple[str, Path | None]:
    """Returns the address that this copy was installed from, empty for an index, and the folder that the address means, if it is one."""
    try:
        note = metadata.distribution("pliant").read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # its files were copied
        note = None
    described = json.loads(note or "{}")
    url = str(described.get("url", ""))
    if vcs := described.get("vcs_info"):
        return f"{vcs['vcs']}+{url}@{vcs['commit_id']}", None
    return url, Path(url2pathname(urlsplit(url).path)) if "dir_info" in described else None


def _requirements(extra: str) -> list[str]:
    """Returns the requirements of an extra, without the condition that names it."""
    every = [r.partition(";") for r in metadata.requires("pliant") or ()]
    return [name.strip() for name, _, condition in every if extra in condition.replace("'", '"').split('"')]


def _from_here(folder: Path) -> str:
    """Returns a folder as pip wants it: `.` if it is the current one."""
    return "." if folder.resolve() == Path(os.getcwd()).resolve() else str(folder)


def _quoted(text: str) -> str:
    """Returns an argument in the quotes of the system's shell."""
    return f'"{text}"' if sys.platform == "win32" else f"'{text}'"
