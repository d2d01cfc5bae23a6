"""Writes what is generated from the declarations of operators: the stub `graph/opset.pyi` and the table in docs/operators.md.

    python tools/list_operators.py             # after an operator was added, renamed or documented otherwise
    python tools/list_operators.py --check     # writes nothing; the exit code is 1 if a file is out of date

`tests/docs/test_operators_page.py` checks that both are current.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pliant.graph.ops as families
from generated_files import update
from pliant.graph.operators import operator_name

STUB = Path(families.__file__).parents[1] / "opset.pyi"
PAGE = Path(__file__).parents[1] / "docs" / "operators.md"
START, END = "<!-- table -->\n", "<!-- end of the table -->\n"
HEAD = '"""The type of each function of `pliant.ops`, and where it is declared. Generated: run `python tools/list_operators.py`."""\n\n'

Functions = dict[str, dict[str, Callable[..., Any]]]


def declared() -> Functions:
    """The functions that each family declares, by name; raises if two families declare the same name."""
    found: Functions = {}
    owners: dict[str, str] = {}
    for family in sorted(m.name for m in iter_modules(families.__path__)):
        module = import_module(f"{families.__name__}.{family}")
        for name, value in sorted(vars(module).items(), key=lambda item: natural(item[0])):
            if operator_name(value) == name and value.__module__ == module.__name__:
                if name in owners:
                    raise ValueError(f"{owners[name]} and {family} both declare {name}")
                owners[name] = family
                found.setdefault(family, {})[name] = value
    return found


def natural(name: str) -> list[tuple[bool, int, str]]:
    """A key that sorts log2 before log10, as ruff sorts imports."""
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name) if part]


def stub(functions: Functions) -> str:
    """The stub: an import of each name from its family."""
    lines = [f"from .ops.{family} import {name} as {name}\n" for family, names in functions.items() for name in names]
    return HEAD + "".join(lines) + "\n__all__: list[str]\n\ndef import_operator(name: str) -> None: ...\n"


def signature(name: str, function: Callable[..., Any]) -> str:
    """A function's parameters without their types."""
    plain = [
        f"{p}{parameter.name}{'' if parameter.default is inspect.Parameter.empty else f'={parameter.default!r}'}"
        for parameter in inspect.signature(function).parameters.values()
        for p in ["*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else ""]
    ]
    return f"{name}({', '.join(plain)})"


def page(functions: Functions, text: str) -> str:
    """The page with its table: a section for each family, with the signature and the first sentence of each function."""
    lines: list[str] = []
    for family, names in functions.items():
        lines += [f"## {family}", "", "| operator | |", "|---|---|"]
        for name in sorted(names):
            sentence = (inspect.getdoc(names[name]) or "").partition("\n")[0].replace("|", "\\|")
            lines.append(f"| `{signature(name, names[name])}` | {sentence} |")
        lines.append("")
    before, rest = text.split(START)
    return before + START + "\n".join(lines) + END + rest.split(END)[1]


def generated() -> dict[Path, str]:
    """The files and the text that they should have."""
    functions = declared()
    return {STUB: stub(functions), PAGE: page(functions, PAGE.read_text(encoding="utf-8"))}


if __name__ == "__main__":
    sys.exit(update(generated(), check="--check" in sys.argv[1:]))
