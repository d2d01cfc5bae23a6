"""Imports go downward only, as ARCHITECTURE.md says: each layer sees those it is built on, wherever in a file the import stands."""

from __future__ import annotations

import ast
import re
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
PIPELINE = {*COMPILER, "program", "compilation", "cache_key", "tuned_code", "weightless", "step_watch", "pipeline"}
API = {*PIPELINE, "program_cost", "own_operators", "api", "artifact", "provenance", "machine_peak", "templates"}
SEES |= {
    "program": COMPILER,
    "own_operators": COMPILER,
    "compilation": {*COMPILER, "program"},
    "cache_key": {*COMPILER, "program"},
    "tuned_code": COMPILER,
    "weightless": {*COMPILER, "program", "cache_key", "tuned_code"},
    "step_watch": {*COMPILER, "program", "compilation"},
    "pipeline": PIPELINE,
    "program_cost": PIPELINE,
    "tune": PIPELINE,
    "frontends": {*IR, "quantization", "graph", "interp", "program"},
    "nn": {"frontends"},
    "check_instruction": API,
    "own_instructions": {*API, "check_instruction"},
    "api": {*API, "frontends"},  # `pliant.compile("model.onnx")`
    "artifact": API,
    "explanation": API,
    "stepping": API,
    "autotuning": {*API, "tune"},
    "kernel_kind": API,
    "exporting": API,
    "provenance": {*API, "report"},  # an executable's report, made when it is asked for
    "machine_peak": API,
    "quantized": API,
    "templates": API,
    "report": API,
    "fast_start": API,
    "video": {*API, "frontends"},
    "onnx_backend": {*API, "frontends"},
    "torch_backend": {*API, "frontends"},
    "onnxruntime": {*API, "frontends", "report", "fast_start"},
    "llm": {*API, "exporting", "frontends", "nn", "quantization"},
}
# What `import_module` is given: ".lower.fusion.fuse:fuse", ".frontends.onnx".
BY_STRING = re.compile(r"(\.+[a-z_]+(?:\.[a-z_]+)*)(?::[a-z_]+)?")
TOP = {"__init__", "__main__", "cli"}  # they see everything
# The native code of the runtime itself is compiled when no cache has it.
EXCEPTIONS = {("runtime/native_library.py", "codegen")}


def imported(file: Path) -> set[str]:
    """The layers that a file of the package imports: at its head, inside of functions, by `import pliant`, and by strings."""
    layers: set[str] = set()
    package = file.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            layers |= _relative("." * node.level + (node.module or ""), package) or {_layer(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pliant":
            inside = (node.module or "").split(".")[1:]
            layers |= {_layer(inside[0])} if inside else {_layer(a.name) for a in node.names}
        elif isinstance(node, ast.Import):
            layers |= {_layer([*a.name.split("."), "api"][1]) for a in node.names if a.name.split(".")[0] == "pliant"}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (match := BY_STRING.fullmatch(node.value)):
            layers |= {name for name in _relative(match[1], package) if name in SEES or name in TOP}
    return layers


def _relative(path: str, package: tuple[str, ...]) -> set[str]:
    """The layer of a module path that begins with dots; nothing where it is the package itself."""
    module = path.lstrip(".")
    above = package[: len(package) - (len(path) - len(module)) + 1]
    parts = (*above, *(module.split(".") if module else ()))
    return {parts[0]} if parts else set()


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
    assert "codegen" in imported(ROOT / "runtime" / "native_library.py")
    assert {"loop", "runtime", "target"} <= imported(ROOT / "codegen" / "llvm.py")
    assert {"graph", "lower"} <= imported(ROOT / "pipeline.py"), "passes, which it names by strings"
    assert "frontends" in imported(ROOT / "api.py"), "readers of files, which it names by strings"
    assert "api" in imported(ROOT / "llm" / "compiled_model.py"), "`import pliant`"


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


def imported_files(file: Path) -> set[Path]:
    """The files of the package that a file imports, at its head or inside of functions; not the packages that they are in."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            places = [above, *(above / alias.name for alias in node.names)]
            found |= {f for place in places for f in (place.with_suffix(".py"), place / "__init__.py") if f.is_file()}
    return found - {file}


def test_no_operator_family_is_in_an_import_cycle() -> None:
    """A family imports `operators.py` and other families; nothing that it imports comes back to it, not even inside of a function."""
    edges = {f: {g for g in imported_files(f) if g.name != "__init__.py"} for f in (ROOT / "graph").rglob("*.py")}
    families = [f for f in edges if f.parent.name == "ops"]
    assert len(families) > 40 and ROOT / "graph" / "operators.py" in edges[ROOT / "graph" / "ops" / "linalg.py"]
    for family in families:
        seen: set[Path] = set()
        todo = [family]
        while todo:
            new = edges.get(todo.pop(), set()) - seen
            seen |= new
            todo += new
        assert family not in seen, family.name
        assert not {"opset.py", "op_table.py", "builder.py"} & {f.name for f in edges[family]}, family.name
