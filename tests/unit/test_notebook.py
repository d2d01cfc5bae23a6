"""What notebooks and prompts show of objects: one line that says what it is, and a table in HTML with every text escaped."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any, get_type_hints

import pytest

import pliant
from pliant import Tensor, dim, f32, function, ops
from pliant.report import profile
from pliant.report.profile import Launch, Limits, Profile
from pliant.runtime import measures
from pliant.runtime.measures import Cost, Counts, Provenance
from pliant.support.html_table import html_table

n = dim("n", max=64, multiple_of=2)


class Reader(HTMLParser):
    """The texts of the cells by rows, and the caption; raises for tags that do not close as they open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.texts: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        elif self.open and data.strip():
            self.texts[self.open[-1]] = data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def f() -> pliant.Executable:
    @function
    def layer(x: Tensor[f32, n, 8]) -> Tensor[f32, n, 8]:
        return ops.relu(x)

    return pliant.compile(layer)


def test_texts_are_escaped() -> None:
    made = read(html_table("<b>", ("a&b",), [("<script>",)], "x < y"))
    assert made.rows == [["a&b"], ["<script>"]] and made.texts == {"caption": "<b>", "p": "x < y"}


def test_a_contract(f: pliant.Executable) -> None:
    assert repr(f.contract) == "<contract of layer(x: Tensor[f32, n, 8]) -> result: Tensor[f32, n, 8]; n in 0..64 step 2>"
    shown = read(f.contract._repr_html_())
    rows = [["argument", "x: Tensor[f32, n, 8]"], ["result", "result: Tensor[f32, n, 8]"], ["dim", "n in 0..64 step 2"]]
    assert shown.rows == [*rows, ["workspace", "0 bytes"]] and shown.texts == {"caption": "layer"}
    assert f._repr_html_() == f.contract._repr_html_()


def test_a_cost(f: pliant.Executable) -> None:
    assert repr(f.cost) == "<cost of layer: print it, or call it with (n=...)>"
    rows = dict(read(f.cost._repr_html_()).rows)
    assert list(rows) == ["operations", "bytes read", "bytes written"]
    assert (eval(rows["bytes read"], {"n": 6}), eval(rows["bytes written"], {"n": 6})) == (6 * 8 * 4, 6 * 8 * 4)
    for name, value in zip(rows, f.cost(n=6), strict=True):
        assert eval(rows[name], {"n": 6}) == value, "the formulas mean what a call gives"


def test_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "limits", lambda threads: Limits(1e9, 1e9))
    launch = Launch(kernel="a<b", layers=(), begin=0, duration=500_000, operations=1000, bytes=4000)
    p = Profile("layer", {"n": 6}, 2, 3, 1_000_000, (launch,))
    assert repr(p) == "<profile of layer: 1 launch, 1.000 ms>"
    shown = read(p._repr_html_())
    assert shown.rows[1][:4] == ["a<b", "1", "0.500", "50.0%"] and shown.rows[2][0] == "between kernels"
    assert shown.texts["caption"] == "layer (n = 6): 1.000 ms with 2 threads"
    assert [cell for row in shown.rows for cell in row if cell] == [w for w in flat(str(p), shown.rows) if w]


def flat(text: str, rows: list[list[str]]) -> list[str]:
    """The cells of the same table as text, whose columns are apart by two spaces at least."""
    lines = text.splitlines()[1 : 1 + len(rows)]
    return [cell.strip() for line in lines for cell in line.split("  ") if cell.strip()]


def test_what_an_executable_tells_is_typed(f: pliant.Executable) -> None:
    """The types are protocols, because the runtime does not see these classes: they have all that the protocols promise."""
    cost: Cost = f._provenance.cost
    p = Profile("layer", {"n": 6}, 2, 3, 1_000_000, (Launch(kernel="k", layers=(), begin=0, duration=1),))
    for protocol, value in ((Counts, cost(n=6)), (measures.Profile, p), (measures.Launch, p.launches[0]), (Provenance, f._provenance)):
        promised = {name for name in vars(protocol) if not name.startswith("_")}
        assert promised and not {name for name in promised if not hasattr(value, name)}
    hints = [get_type_hints(m)["return"] for m in (vars(pliant.Executable)["cost"].fget, pliant.Executable.profile)]
    assert hints == [Cost, measures.Profile]
