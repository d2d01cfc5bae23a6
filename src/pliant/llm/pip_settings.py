"""Reads pip's settings from its environment variables and configuration files, in order of precedence.

setting("index-url")        # PIP_INDEX_URL, or `index-url` of [download], [install] or [global] in a file; None if it is not set
"""

from __future__ import annotations

import configparser
import os
import sys
from pathlib import Path


def setting(name: str) -> str | None:
    """Returns the value of an option of `pip download`, or None if it is not set."""
    if from_env := os.environ.get("PIP_" + name.upper().replace("-", "_")):
        return from_env
    return next((value for file in _files() if (value := _in_file(file, name))), None)


def _files() -> list[Path]:
    """Returns pip's configuration files for this system, in order of precedence; they need not exist.

    PIP_CONFIG_FILE replaces all of them; if it is the null device, there are none.
    """
    if chosen := os.environ.get("PIP_CONFIG_FILE"):
        return [] if chosen == os.devnull else [Path(chosen)]
    name = "pip.ini" if sys.platform == "win32" else "pip.conf"
    site = [Path(sys.prefix) / name]
    try:
        home = Path.home()
    except RuntimeError:
        return site
    if sys.platform == "win32":
        return [*site, *(Path(os.environ[key]) / "pip" / name for key in ("APPDATA", "PROGRAMDATA") if key in os.environ)]
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    mac = [home / "Library/Application Support/pip" / name] if sys.platform == "darwin" else []
    shared = [Path(p) / "pip" / name for p in (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)]
    return [*site, *mac, config / "pip" / name, home / ".pip" / name, *shared, Path("/etc") / name]


def _in_file(file: Path, name: str) -> str | None:
    parser = configparser.RawConfigParser()
    try:
        parser.read(file, encoding="utf-8")
    except (OSError, configparser.Error, UnicodeDecodeError):
        return None  # an unreadable file is pip's to report
    return next((parser.get(s, name) for s in ("download", "install", "global") if parser.has_option(s, name)), None)
