"""The npm package `pliant-web`: imported by its name, with types for all that it exports, and packed by npm where npm is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import npm_package
import pliant
from node_programs import node
from pliant import Tensor, dim, f32, function

n = dim("n", max=64)


@function
def double(x: Tensor[f32, n]) -> Tensor[f32, n]:
    return x + x


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has the package among its modules, and an exported program."""
    node()
    folder = tmp_path_factory.mktemp("project")
    npm_package.write(folder / "node_modules" / "pliant-web")
    pliant.export(double, "web", folder / "model")
    return folder


def test_a_program_runs_by_the_package_alone(project: Path) -> None:
    (project / "main.mjs").write_text(
        """
        import * as pliant from "pliant-web";
        const m = await pliant.load(new URL("model/double.json", import.meta.url), { threads: 2 });
        const x = Float32Array.of(1, 2, 3.5);
        const [y] = Object.values(await m.run({ x }));
        const members = Object.getOwnPropertyNames(Object.getPrototypeOf(m));
        console.log(JSON.stringify({ y: [...y.data], names: Object.keys(pliant).sort(), members, threads: m.features.threads }));
        m.close();
        """
    )
    done = subprocess.run([node(), "main.mjs"], cwd=project, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert np.array_equal(said["y"], [2, 4, 7]) and said["threads"] == 2
    types = (project / "node_modules" / "pliant-web" / "pliant.d.ts").read_text()
    declared = set(re.findall(r"export declare (?:class|function) (\w+)", types))
    assert declared == set(said["names"]) - {"Model"}
    model = types.partition("export interface Model {")[2].partition("\n}")[0]
    inner = {"constructor", "start", "startHere"}
    assert set(re.findall(r"^  (?:readonly )?(\w+)[(:]", model, re.MULTILINE)) == set(said["members"]) - inner


def test_npm_packs_it(project: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("packs the package with npm, which is not installed")
    package = project / "node_modules" / "pliant-web"
    done = subprocess.run(
        [npm, "pack", "--dry-run", "--json", "--offline"], cwd=package, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    (packed,) = json.loads(done.stdout)
    assert {f["path"] for f in packed["files"]} == {f.name for f in package.iterdir()}
    assert packed["name"] == "pliant-web" and packed["version"] == pliant.__version__ and packed["size"] < 60_000
    assert "dependencies" not in json.loads((package / "package.json").read_text())
