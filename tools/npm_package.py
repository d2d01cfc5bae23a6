"""Writes the npm package `pliant-web`: the JavaScript that exported pages contain, for pages of one's own that are built with npm.

    python tools/npm_package.py dist/pliant-web      # then: npm pack dist/pliant-web

The package holds the same files as an exported folder, the types, and a package.json. It has no dependency, and nothing in it is built.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "pliant" / "codegen" / "web"


def manifest() -> dict[str, object]:
    """The package.json: an ES module with types, of the version of Pliant whose exports it runs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        "name": "pliant-web",
        "version": project["version"],
        "description": "Runs models that Pliant exported for the web: WebAssembly with SIMD and threads",
        "license": project["license"],
        "type": "module",
        "sideEffects": ["./worker.js", "./thread.js"],
        "exports": {".": {"types": "./pliant.d.ts", "default": "./pliant.js"}, "./package.json": "./package.json"},
        "types": "./pliant.d.ts",
        "files": ["*.js", "pliant.d.ts", "LICENSE"],
        "engines": {"node": ">=20.19"},
    }


def write(folder: Path) -> list[Path]:
    """Writes the package into a folder; returns its files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [*sorted(SOURCE.glob("*.js")), SOURCE / "pliant.d.ts", ROOT / "LICENSE"]
    for file in files:
        shutil.copyfile(file, folder / file.name)
    (folder / "package.json").write_text(json.dumps(manifest(), indent=2) + "\n", encoding="utf-8")
    return [*(folder / file.name for file in files), folder / "package.json"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="writes the npm package `pliant-web` into a folder")
    parser.add_argument("folder", type=Path)
    for path in write(parser.parse_args().folder):
        print(path)
