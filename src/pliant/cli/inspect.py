"""`pliant inspect FILE`: shows the contents of a `.pliant` artifact, an ONNX model, a language model, or a `.safetensors` file.

It verifies every checksum of an artifact, and executes nothing of the file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ..runtime import container
from ..runtime.container import Container, broken
from ..support.units import in_bytes
from . import Usage

PARTS = ("summary", "program", "layers", "tensors")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `pliant inspect` to the parser."""
    parser.add_argument(
        "file",
        help="an .onnx, .pt2, .pliant, .gguf or .safetensors file, a checkpoint folder of transformers, or the name of a language model: "
        "`pliant models list`",
    )
    parser.add_argument("--show", choices=PARTS, default="summary", help="a summary of the file, or one part in full (default: summary)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Runs `pliant inspect`: prints the contents of a model file.

    Returns the exit code, 2 if something in an ONNX model is not supported. Raises Usage if a program is asked for and the file has none.
    """
    if Path(options.file).suffix == ".onnx":
        return _inspect_onnx(options)
    if _is_language_model(options.file):
        return _inspect_language_model(options)
    if Path(options.file).suffix == ".pt2":
        return _inspect_pt2(options)
    if Path(options.file).suffix == ".safetensors":
        facts = safetensors_facts(options.file)
    else:
        facts = artifact_facts(container.read(options.file))
    if options.show == "program" and "program" not in facts:
        raise Usage(f"{options.file} has no program", "--show tensors shows what it has")
    print(json.dumps(facts) if options.json else _shown(facts, options.show))
    return 0


def _inspect_onnx(options: argparse.Namespace) -> int:
    """Shows an ONNX model; returns 2 if something in it is not supported."""
    from ..frontends.onnx.summary import onnx_facts, onnx_text

    facts = onnx_facts(options.file)
    if options.show == "program" and not facts["problem"]:
        from ..frontends.onnx import from_onnx

        text = str(from_onnx(options.file)).rstrip()
        print(json.dumps({"file": options.file, "program": text}) if options.json else text)
        return 0
    if options.show == "layers" and not facts["problem"]:
        return _show_modules(options)
    if options.show == "tensors" and not options.json:
        print("\n".join(f"{t['name']}: {t['dtype']} {tuple(t['shape'])}" for t in facts["tensors"]) or "no tensors")
    else:
        print(json.dumps(facts) if options.json else onnx_text(facts))
    return 2 if facts["problem"] else 0


def _show_modules(options: argparse.Namespace) -> int:
    """Shows the table of an ONNX model's modules, with multiply-adds at the sizes of the summary."""
    from ..frontends.onnx.importer import Importer
    from ..frontends.onnx.modules import module_rows, module_text
    from ..frontends.onnx.reader import read_model
    from ..frontends.onnx.summary import samples

    function = Importer(read_model(options.file)).run()
    dims = samples(function)[-1]
    rows = module_rows(function, dims)
    print(json.dumps({"file": options.file, "dims": dims, "modules": rows}) if options.json else module_text(rows, dims))
    return 0


def _is_language_model(name: str) -> bool:
    """True for a GGUF file, a folder, a name of the catalog, and a name in the Hugging Face cache."""
    from ..llm.catalog import CATALOGUE

    path = Path(name)
    return name.startswith("hf:") or path.suffix == ".gguf" or path.is_dir() or (name in CATALOGUE and not path.exists())


def _inspect_language_model(options: argparse.Namespace) -> int:
    """Shows a language model that is on this machine; returns 2 if something in it is not supported."""
    from ..llm.embedder import embeds
    from ..llm.locate import locate
    from ..llm.model_facts import model_facts, model_text
    from ..llm.model_file import open_model

    if options.show in ("program", "layers"):
        raise Usage(f"{options.file} has no {options.show}: its architecture is a name", "--show tensors shows what it has")
    place = locate(options.file, offline=True)
    place = place.parent if place.suffix == ".safetensors" else place  # an embedder of the catalog
    if place.is_dir() and embeds(place):
        return _inspect_embedder(options, place)
    facts = model_facts(open_model(place))
    if options.show == "tensors" and not options.json:
        print("\n".join(map(_tensor, facts["tensors"])) or "no tensors")
    else:
        print(json.dumps(facts) if options.json else model_text(facts))
    return 2 if facts["problem"] else 0


def _inspect_embedder(options: argparse.Namespace, place: Path) -> int:
    """Shows an embedder's folder; raises UnsupportedError if something in it is not supported."""
    from ..llm.embedder import embedder_facts

    facts = embedder_facts(place)
    if options.json:
        print(json.dumps(facts))
    elif options.show == "tensors":
        print("\n".join(map(_tensor, facts["tensors"])))
    else:
        print(f"{place}: {in_bytes(sum(t['bytes'] for t in facts['tensors']))} of weights")
        print(f"an embedder: architecture bert, {facts['layers']} layers, {facts['width']} wide, {facts['context']} tokens of context")
        print(f"pooling: {facts['pooling']}, {'normalized' if facts['normalized'] else 'not normalized'}")
    return 0


def _inspect_pt2(options: argparse.Namespace) -> int:
    """Shows an exported PyTorch program; raises UnsupportedError if something in it is not supported."""
    from ..frontends.torch import read_pt2

    entry = (program := read_pt2(options.file)).entry
    layers = list(dict.fromkeys(layer for n in entry.nodes for layer in n.origin))
    facts: dict[str, Any] = {
        "file": options.file,
        "bytes": Path(options.file).stat().st_size,
        "inputs": [repr(p) for p in entry.params],
        "outputs": [f"{name}: {v.annotation}" for name, v in zip(entry.attrs["outputs"], entry.results, strict=True)],
        "layers": layers,
        "tensors": [{"name": n, "dtype": str(a.dtype), "shape": list(a.shape)} for n, a in program.named_constants.items()],
    }
    if options.json:
        print(json.dumps(facts))
    elif options.show == "program":
        print(str(program).rstrip())
    elif options.show in ("layers", "tensors"):
        shown = layers if options.show == "layers" else [f"{t['name']}: {t['dtype']} {tuple(t['shape'])}" for t in facts["tensors"]]
        print("\n".join(shown) or f"no {options.show}")
    else:
        head = f"{options.file}: {in_bytes(facts['bytes'])}, {len(entry.nodes)} nodes, {len(layers)} layers"
        print("\n".join([head, *(f"  {t}" for t in facts["inputs"]), *(f"  -> {t}" for t in facts["outputs"])]))
    return 0


def safetensors_facts(path: str) -> dict[str, Any]:
    """Returns a description of a safetensors file (tensors without data, metadata), ready for JSON."""
    from ..frontends.safetensors import load_safetensors

    weights = load_safetensors(path)
    tensors = [{"name": n, "dtype": str(s.dtype), "shape": list(s.shape), "bytes": s.end - s.begin} for n, s in weights.stored.items()]
    return {"file": path, "bytes": Path(path).stat().st_size, "metadata": weights.metadata, "tensors": tensors}


def artifact_facts(file: Container) -> dict[str, Any]:
    """Returns the contents of an artifact, ready for JSON; raises if a section does not have its checksum."""
    for section in file.sections:
        section.check()
    facts: dict[str, Any] = {"file": file.file, "bytes": file.size, "version": file.version, "made_by": file.made_by}
    for kind in ("contract", "layers"):
        for section in file.find(kind):
            facts[kind] = _json(file, bytes(section.data))
    for section in file.find("program"):
        facts["program"] = bytes(section.data).decode(errors="replace")
    facts["code"] = [{"target": s.name, "bytes": len(s.data), "features": s.facts.get("features", [])} for s in file.find("code")]
    names = _names(file)
    facts["tensors"] = [
        {"name": names.get(i, ""), "dtype": s.facts.get("dtype"), "shape": s.facts.get("shape"), "bytes": len(s.data)}
        for i, s in enumerate(file.find("tensor"))
    ]
    return facts


def _json(file: Container, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise broken(file.file, "a part of it is not JSON") from None


def _names(file: Container) -> dict[int, str]:
    """Returns the name of each tensor in the program, by its number."""
    by_tensor: dict[int, str] = {}
    for section in file.find("program"):
        names, literals = section.facts.get("names"), section.facts.get("literals")
        if isinstance(names, dict) and isinstance(literals, list):
            by_tensor |= {literals[n]: name for name, n in names.items() if type(n) is int and 0 <= n < len(literals)}
    return by_tensor


def _shown(facts: dict[str, Any], part: str) -> str:
    if part == "program":
        return str(facts["program"]).rstrip()
    if part == "layers":
        return "\n".join(dict.fromkeys(layer for node in facts.get("layers", []) for layer in node)) or "no layers are known"
    if part == "tensors":
        return "\n".join(map(_tensor, facts["tensors"])) or "no tensors"
    return "\n".join(_summary(facts))


def _summary(facts: dict[str, Any]) -> list[str]:
    lines = [f"{facts['file']}: {in_bytes(facts['bytes'])}"]
    if "contract" in facts:
        contract = facts["contract"]
        lines += [f"made by Pliant {facts['made_by']}, form {facts['version']}", str(contract.get("name", ""))]
        lines += [f"  {text}" for text in contract.get("inputs", [])]
        lines += [f"  -> {text}" for text in contract.get("outputs", [])]
        lines += [f"  {text}" for text in contract.get("dims", [])]
        lines += [f"code for {c['target']}: {in_bytes(c['bytes'])}" for c in facts["code"]]
        layers = {layer for node in facts.get("layers", []) for layer in node}
        lines.append(f"program: {len(facts.get('program', '').splitlines())} lines, {len(layers)} layers")
    total = sum(t["bytes"] for t in facts["tensors"])
    lines.append(f"{len(facts['tensors'])} tensors, {in_bytes(total)}")
    lines += [f"  {_tensor(t)}" for t in sorted(facts["tensors"], key=lambda t: -t["bytes"])[:8]]
    if len(facts["tensors"]) > 8:
        lines.append(f"  … {len(facts['tensors']) - 8} more: --show tensors")
    return lines


def _tensor(t: dict[str, Any]) -> str:
    shape = ", ".join(map(str, (t["dtype"], *(t["shape"] or []))))
    return f"{t['name'] or '(no name)'}: Tensor[{shape}], {in_bytes(t['bytes'])}"
