"""The before -> after texts in the docstrings of the primitives are true."""

from __future__ import annotations

import inspect
import re
import textwrap

import pytest

from pliant.schedule import Schedule
from schedule_kernels import parse

SIGNATURE = """
n = dim("n")
m = dim("m")
@kernel
def f(
    a: Tensor[f32, n, 8], b: Tensor[f32, 8, 16], c: Out[f32, n, 16], x: Tensor[f32, n, m], y: Out[f32, n, m],
    v: Tensor[f32, n], w: Out[f32, n],
) -> None:
"""
QUERIES = {"attempt", "block", "child_blocks", "consumers", "copy", "func", "loop", "loops", "output_blocks", "producers", "program"}
QUERIES |= {"rounding", "trace"}
PRIMITIVES = sorted(name for name in vars(Schedule) if not name.startswith(("_", "sample_")) and name not in QUERIES)


def example(doc: str) -> tuple[str, str, str]:
    """The program before, the call, and the program after."""
    before, call, after = re.split(r"^-> `(.+)`$", doc, flags=re.MULTILINE)
    body = "\n".join(line for line in before.splitlines() if line.startswith("    "))
    return textwrap.dedent(body), call, textwrap.dedent(after).strip()


@pytest.mark.parametrize("name", PRIMITIVES)
def test_docstring(name: str) -> None:
    before, call, after = example(inspect.getdoc(getattr(Schedule, name)) or "")
    s = Schedule(parse(SIGNATURE + textwrap.indent(before, "    ")))
    names: dict[str, object] = {"s": s}
    for block in re.findall(r'block\("(\w+)"', before):
        for h in s.loops(block):
            names.setdefault(h.loop.var.name, h)
    assert call.startswith(f"s.{name}(")
    eval(call, names)
    body = str(s.program).split(") -> None:\n", 1)[1]
    assert textwrap.dedent(body).strip() == after
