"""Exported programs in node, run by the `pliant.js` that exports for the web contain.

results = run_in_node(folder, "layer", [{"x": x, "scale": 2.0}])          # one list of arrays for each call, or the text of its error
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant.dtype import ALL

RUNTIME = Path(pliant.__file__).parent / "codegen" / "web" / "pliant.js"
# The JavaScript arrays of numpy's types, where the names differ.
_ARRAYS = {
    "float32": "Float32Array", "float64": "Float64Array", "int64": "BigInt64Array", "uint64": "BigUint64Array", "float16": "Uint16Array",
    "bool": "Uint8Array",
}  # fmt: skip

_DRIVER = """
import { readFileSync } from "node:fs";
const { runtime, url, calls, options } = JSON.parse(readFileSync(0, "utf8"));
const { load } = await import(runtime);
const m = await load(url, options);
const answers = [];
for (const call of calls) {
  const inputs = {}, dims = {};
  for (const [name, a] of Object.entries(call)) {
    if (a.scalar !== undefined) { inputs[name] = a.scalar; continue; }
    const bytes = Buffer.from(a.data, "base64");
    inputs[name] = new globalThis[a.array](new Uint8Array(bytes).buffer);
    if (a.dims) dims[name] = a.dims;
  }
  try {
    const results = await m.run(inputs, dims);
    const coded = ([name, r]) => ({ name, dims: r.dims, dtype: r.dtype, data: Buffer.from(r.data.buffer).toString("base64") });
    const state = m.arguments.filter((a) => a.state).map((a) => Buffer.from(inputs[a.name].buffer).toString("base64"));
    answers.push({ results: Object.entries(results).map(coded), state });
  } catch (e) {
    answers.push({ error: `${e.name}: ${e.message}` });
  }
}
m.close();
await new Promise((done) => process.stdout.write(JSON.stringify({ answers, features: m.features }), done));
"""


def node() -> str:
    """The command `node`; skips the test where there is none."""
    command = shutil.which("node")
    if command is None:
        pytest.skip("runs exported programs in node, which is not installed")
    return command


def run_in_node(
    folder: Path, name: str, calls: Sequence[Mapping[str, Any]], runtime: Path = RUNTIME, flags: Sequence[str] = (), **options: Any
) -> list[Any]:
    """The results of calls of an exported program, one after the other in one instance; state arguments are updated in place.

    `flags` are those of node, `options` those of `load`.
    """
    return run_with_features(folder, name, calls, runtime, flags, **options)[0]


def run_with_features(
    folder: Path, name: str, calls: Sequence[Mapping[str, Any]], runtime: Path = RUNTIME, flags: Sequence[str] = (), **options: Any
) -> tuple[list[Any], dict[str, Any]]:
    """As `run_in_node`, with what the program used: threads, shared memory, fused multiply-add."""
    coded = [{key: _coded(value) for key, value in call.items()} for call in calls]
    asked = {"runtime": runtime.as_uri(), "url": (folder / f"{name}.json").as_uri(), "calls": coded, "options": options}
    command = [node(), *flags, "--input-type=module", "-e", _DRIVER]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads((folder / f"{name}.json").read_text())
    states = [a["name"] for a in facts["arguments"] if a.get("state")]
    answers: list[Any] = []
    said = json.loads(done.stdout)
    for call, answer in zip(calls, said["answers"], strict=True):
        if "error" in answer:
            answers.append(answer["error"])
            continue
        for key, content in zip(states, answer["state"], strict=True):
            call[key][...] = np.frombuffer(base64.b64decode(content), call[key].dtype).reshape(call[key].shape)
        answers.append([_array(r) for r in answer["results"]])
    return answers, said["features"]


def in_node(script: str, flags: Sequence[str] = (), **given: object) -> Any:
    """What a script writes with `say`, with `load` of the runtime, its other files by `part(name)`, and what it is given."""
    head = f"""
        import {{ readFileSync }} from "node:fs";
        import {{ load, PliantError }} from {json.dumps(RUNTIME.as_uri())};
        const part = (name) => import(new URL(name, {json.dumps(RUNTIME.as_uri())}));
        const say = (value) => process.stdout.write(JSON.stringify(value));
        const {{ {", ".join(given)} }} = JSON.parse(readFileSync(0, "utf8"));
    """
    command = [node(), *flags, "--input-type=module", "-e", head + script]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _coded(value: Any) -> dict[str, Any]:
    if not isinstance(value, np.ndarray):
        return {"scalar": value}
    kind = value.dtype.name
    array = _ARRAYS.get(kind, f"{kind.capitalize()}Array")
    return {"array": array, "dims": list(value.shape), "data": base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()}


def _array(result: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    return np.frombuffer(base64.b64decode(result["data"]), ALL[result["dtype"]].numpy()).reshape(result["dims"])
