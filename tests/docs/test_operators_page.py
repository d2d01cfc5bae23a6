"""docs/operators.md: its table is that of the code; `PLIANT_UPDATE=1` writes it anew."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

from pliant.graph import ops

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
START, END = "<!-- table -->\n", "<!-- end of the table -->\n"


def signature(name: str) -> str:
    """A function's parameters without their types."""
    plain = [
        f"{p}{parameter.name}{'' if parameter.default is inspect.Parameter.empty else f'={parameter.default!r}'}"
        for parameter in inspect.signature(getattr(ops, name)).parameters.values()
        for p in ["*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else ""]
    ]
    return f"{name}({', '.join(plain)})"


def table() -> str:
    """A section for each file of operators: signature and first sentence of each function."""
    families: dict[str, list[str]] = {}
    for name in sorted(ops.__all__):
        families.setdefault(getattr(ops, name).__module__.rpartition(".")[2], []).append(name)
    lines: list[str] = []
    for family in sorted(families):
        lines += [f"## {family}", "", "| operator | |", "|---|---|"]
        for name in families[family]:
            sentence = (inspect.getdoc(getattr(ops, name)) or "").partition("\n")[0].replace("|", "\\|")
            lines.append(f"| `{signature(name)}` | {sentence} |")
        lines.append("")
    return "\n".join(lines)


def test_the_page_is_that_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(START)
    found, after = rest.split(END)
    if os.environ.get("PLIANT_UPDATE") == "1":
        PAGE.write_text(before + START + table() + END + after, encoding="utf-8")
        return
    assert found == table(), "run this test with PLIANT_UPDATE=1"


def test_every_operator_says_what_it_does() -> None:
    for name in ops.__all__:
        assert re.match(r"\S.*[.:]", inspect.getdoc(getattr(ops, name)) or ""), name
