"""Imports go downward only, as ARCHITECTURE.md says: each layer sees those it is built on, wherever in a file the import stands."""

from __future__ import annotations

import ast
from pathlib import Path

import pliant

ROOT = Path(pliant.__file__).parent

BASE = {"support", "dtype"}
IR = {*BASE, "sym"}
SEES: dict[str, set[str]] = {
    "support": BASE,
    "dtype": BASE,
    "target": BASE,
    "quantization": {*BASE, "quantization"},
    "sym": IR,
    "graph": {*IR, "quantization"},
    "loop": IR,
    "runtime": BASE,
    "schedule": {*IR, "loop", "target"},
    "codegen": {*IR, "loop", "target", "runtime"},
    "interp": {*IR, "graph", "loop"},
    "backend": {*IR, "loop", "schedule", "codegen", "target", "runtime"},
    "lower": {*IR, "graph", "loop", "schedule", "codegen", "backend", "target", "runtime"},
}
COMPILER = {*SEES}
API = {*COMPILER, "program", "pipeline", "cost", "own_operators", "api", "artifact", "lineage", "measure", "templates"}
SEES |= {
    "program": COMPILER,
    "own_operators": COMPILER,
    "pipeline": {*COMPILER, "program"},
    "cost": {*COMPILER, "program", "pipeline"},
    "tune": {*COMPILER, "program", "pipeline"},
    "frontends": {*IR, "quantization", "graph", "interp", "program"},
    "nn": {"frontends"},
    "check_instruction": API,
    "own_instructions": {*API, "check_instruction"},
    "api": API,
    "artifact": API,
    "explanation": API,
    "exporting": API,
    "lineage": {*API, "report"},  # an executable's report, made when it is asked for
    "measure": API,
    "quantized": API,
    "templates": API,
    "report": API,
    "onnx_backend": {*API, "frontends"},
    "onnxruntime": {*API, "frontends", "onnx_backend"},
    "llm": {*API, "frontends", "nn", "quantization"},
}
TOP = {"__init__", "__main__", "cli"}  # they see everything
# The native code of the runtime itself is compiled when no cache has it.
EXCEPTIONS = {("runtime/native.py", "codegen")}


def imported(file: Path) -> set[str]:
    """The layers that a file of the package imports, at its head or inside of functions."""
    found: set[str] = set()
    package = file.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = package[: len(package) - node.level + 1]
            path = (*above, *(node.module or "").split(".")) if node.module else above
            found |= {path[0]} if path else {_layer(alias.name) for alias in node.names}
    return found


def _layer(name: str) -> str:
    """The layer that a name of the package itself comes from: a part of it, or what users call."""
    return name if name in SEES or name in TOP else "api"


def test_imports_go_downward_only() -> None:
    wrong = []
    for file in sorted(ROOT.rglob("*.py")):
        name = file.relative_to(ROOT).as_posix()
        layer = name.split("/")[0].removesuffix(".py")
        assert layer in SEES or layer in TOP, f"which layer is {name}?"
        if layer in SEES:
            for other in imported(file) - SEES[layer] - {layer}:
                if (name, other) not in EXCEPTIONS:
                    wrong.append(f"{name} imports {other}")
    assert wrong == []


def test_the_scan_sees_imports() -> None:
    assert "codegen" in imported(ROOT / "runtime" / "native.py")
    assert {"loop", "runtime", "target"} <= imported(ROOT / "codegen" / "llvm.py")


def test_only_the_table_of_rules_is_known_outside_of_it() -> None:
    """Who needs something of the default rules asks `schedule/library/__init__.py`, so that rules can be added and changed alone."""
    inside = ROOT / "schedule" / "library"
    modules = {f.stem for f in inside.glob("*.py")}
    wrong = []
    for file in sorted(ROOT.rglob("*.py")):
        if inside in file.parents:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            path = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
            names = {a.name for a in node.names} if isinstance(node, ast.ImportFrom) else set()
            if "library" in path and (path[-1] != "library" or names & modules):
                wrong.append(f"{file.relative_to(ROOT)} imports {node.module if isinstance(node, ast.ImportFrom) else ''}")
    assert not wrong
