"""Reports: one page that needs nothing else, with every layer, launch, kernel and temporary, and times once a profile was taken."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, nn, ops
from pliant.report import facts, launches, memory, profile, tables
from pliant.report.assembly import kernel_assembly, kernels_of, split_functions
from pliant.report.bounds import Texts
from pliant.report.facts import Facts, facts_of
from pliant.report.launches import steps
from pliant.report.layers import depth_within, tree_of
from pliant.report.markup import environment
from pliant.report.memory import Place, memory_chart
from pliant.report.profile import Launch, Limits
from pliant.report.roofline import points_of, roofline
from pliant.report.tables import TIMES, kernel_table, launch_table, layers_text
from pliant.support.units import in_bytes
from pliant.sym.expr import Dim, const
from pliant.sym.typical import typical

n = dim("n", max=4096)
rng = np.random.default_rng(1)


class Block(nn.Module):
    def __init__(self) -> None:
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return self.down(ops.softmax(self.up(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        self.blocks = nn.ModuleList([Block(), Block()])
        self.load_state_dict({name: rng.standard_normal(p.shape) for name, p in self.named_parameters()})

    def forward(self, x: Tensor[f32, n, 8]) -> Tensor[f32, n, 8]:
        for block in self.blocks:
            x = block(x)
        return x


class Checked(HTMLParser):
    """Finds elements that are not closed in order, and what a page asks for from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)
        self.outside += [v or "" for k, v in attrs if k in ("src", "href") and not (v or "").startswith("#")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


def check(text: str) -> None:
    parser = Checked()
    parser.feed(text)
    assert parser.open == [] and parser.outside == [] and "url(" not in text and "@import" not in text


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str, str]:
    """A program, its report, and its report after a profile."""
    folder = tmp_path_factory.mktemp("report")
    f = pliant.compile(Model())
    with pytest.MonkeyPatch.context() as patch:
        for module in (facts, profile):
            patch.setattr(module, "limits", lambda threads: Limits(1e11, 1e10))
        f.report(folder / "plain.html")
        f.profile(np.ones((5, 8), np.float32))
        f.report(folder / "timed.html")
    return f, (folder / "plain.html").read_text(), (folder / "timed.html").read_text()


def test_the_pages_are_whole(pages: tuple[Any, str, str]) -> None:
    _, plain, timed = pages
    check(plain)
    check(timed)


def test_every_layer_launch_and_kernel_is_there(pages: tuple[Any, str, str]) -> None:
    f, plain, _ = pages
    found = steps(f._provenance)
    assert [f'id="launch-{i}"' in plain for i in range(len(found) + 1)] == [True] * len(found) + [False]
    for layer in ("blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down"):
        assert layer in plain
    for number in range(len({s.func for s in found})):
        assert f'id="kernel-{number}"' in plain and f'href="#kernel-{number}"' in plain
    assert plain.count("<summary>what it computes</summary>") == len({s.func for s in found})
    assert "@kernel" in plain and "ops.linear(" in plain and "\tret" in plain
    assert len(re.findall(r'class="mono soft shapes" title="f32\[n, (8|16)\],[^"]* \u2192 f32\[n, \d+\]"', plain)) >= 2


def test_sources_layers_and_kernels_lead_to_each_other(pages: tuple[Any, str, str]) -> None:
    """The line of Block.forward has a row with its kernels, and each of these leads back; every link of the page has its target."""
    f, plain, _ = pages
    row = re.search(r'<tr id="source-(\d)"><td>[^<]*test_report.py:\d+</td><td><code>return self.down\(ops.*?</tr>', plain)
    assert row is not None and set(re.findall(r'href="#kernel-(\d+)"', row[0])) == {
        str(k) for k in range(len({s.func for s in steps(f._provenance)}))
    }
    kernel = plain[plain.index('id="kernel-0"') : plain.index("</details>", plain.index('id="kernel-0"'))]
    assert f'href="#source-{row[1]}"' in kernel and 'href="#launch-0"' in kernel and "For blocks.0." in kernel
    assert set(re.findall(r'href="#([^"]+)"', plain)) <= set(re.findall(r'id="([^"]+)"', plain))


def test_kernels_of_the_same_name_have_their_own_assembly(pages: tuple[Any, str, str]) -> None:
    """What runs in parallel is part of it, and multiplies; the functions of the other kernel are not."""
    f, *_ = pages
    first, second = (kernel_assembly(func, f._provenance) for func in kernels_of(f._provenance) if func.name == "linear")
    labels = [[line.rstrip(":") for line in text.splitlines() if not line.startswith(("\t", "."))] for text in (first, second)]
    assert labels[0] != labels[1] and all(any(re.match(r"linear_\w+\.inner", label) for label in found) for found in labels)
    loop = first[first.index("linear_") :]
    assert re.search(r"mul|fma|fml", loop)


def test_kernels_of_the_same_name_have_numbers(pages: tuple[Any, str, str]) -> None:
    f, plain, _ = pages
    x = facts_of(f, f._provenance)
    names = [x.name(func) for func in x.numbers]
    assert len(set(names)) == len(names) and {"linear", "linear (2)"} <= set(names)
    assert ">linear (2)</a>" in plain and "<strong>linear (2)</strong>" in plain


def test_kernels_of_repeated_layers_are_shared(pages: tuple[Any, str, str]) -> None:
    f, _, _ = pages
    first, second = (
        [s.func for s in steps(f._provenance) if any(layer.startswith(f"blocks.{k}.") for layer in s.layers)] for k in range(2)
    )  # fmt: skip
    assert first and set(first) == set(second)


def test_times_are_there_after_a_profile(pages: tuple[Any, str, str]) -> None:
    f, plain, timed = pages
    assert "profiled run" not in plain and 'class="time"' not in plain
    size = eval(f.interface.workspace, {"n": 5, "max": max, "min": min})  # the formula, as Python computes it
    assert f'<dd class="mono">{in_bytes(size)} at n = 5<br>{f.interface.workspace} bytes</dd>' in timed
    assert "profiled run" in timed and re.search(r"n = 5; [\d.]+% in kernels", timed) and 'class="time"' in timed


def test_texts_of_users_are_escaped(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            setattr(self, "<b>", nn.Identity())
            setattr(self, "<i>&", nn.Tanh())

        def forward(self, x: Tensor[f32, n]) -> Any:
            return getattr(self, "<i>&")(x)

    pliant.compile(Odd()).report(tmp_path / "odd.html")
    text = (tmp_path / "odd.html").read_text()
    check(text)
    assert "&lt;i&gt;&amp;" in text and "<i>&" not in text


def test_the_tree_of_layers() -> None:
    tree = tree_of([("a.b", 0), ("a.c", 1), ("a.b", 2), ("", 3)])
    assert tree.own == [3] and list(tree.children["a"].children) == ["b", "c"]
    assert tree.children["a"].children["b"].own == [0, 2] and sorted(tree.every()) == [0, 1, 2, 3]


def test_paths_with_slashes_and_dots() -> None:
    tree = tree_of([("/encoder/layer.3/Add", 0), ("encoder.layer.3.Mul", 1)])
    assert list(tree.children["encoder"].children["layer"].children["3"].children) == ["Add", "Mul"]


def test_the_depth_of_a_bounded_tree() -> None:
    tree = tree_of([(f"{a}.{b}", 0) for a in "xy" for b in "123"])  # 2 layers, 6 below them, an item in each
    assert [depth_within(tree, rows) for rows in (1, 2, 7, 8, 14)] == [0, 1, 1, 2, 3]


@pytest.fixture
def timed(pages: tuple[Any, str, str], monkeypatch: pytest.MonkeyPatch) -> Facts:
    """Facts with made up times: each launch took 100, 200 and 300 ns in three runs, for 2,000 operations and 40 bytes."""
    f, *_ = pages
    monkeypatch.setattr(facts, "limits", lambda threads: Limits(1e11, 1e9))
    x = facts_of(f, f._provenance)
    assert x.profile is not None
    launch = [Launch(s.name, s.layers, 0, 100, 2000, 40, (100, 200, 300)) for s in x.steps]
    return dataclasses.replace(x, profile=dataclasses.replace(x.profile, wall=1000), times=launch)


def test_a_cost_that_overflowed_is_unknown(pages: tuple[Any, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    f, *_ = pages
    step, dims = steps(f._provenance)[0], facts_of(f, f._provenance).dims()
    assert step.cost(dims) is not None
    known = launches.loop_cost
    monkeypatch.setattr(launches, "loop_cost", lambda func: dataclasses.replace(known(func), exact=False))
    assert step.cost(dims) is None


def test_the_cells_of_times(timed: Facts) -> None:
    """The memory of a launch takes 40 ns at the limit: of 100 ns, 60 are above it."""
    table = kernel_table(timed)
    assert table is not None and [c.name for c in table.columns] == ["kernel", "launches", *TIMES]
    for row in table.rows:
        n_launches = row[1].value
        assert n_launches is not None and n_launches >= 1
        spent, median, spread, share, operations, memory, limit, above = row[2:]
        assert (spent.value, median.value, spread.value) == (100 * n_launches, 200 * n_launches, 200 * n_launches)
        assert share.value == pytest.approx(n_launches / 10) and share.text == f"{10 * n_launches:.1f}%"
        assert (operations.text, memory.text, limit.text, above.value) == ("20 GFLOP/s", "400 MB/s", "40%", 60 * n_launches)
    assert sum(row[1].value or 0 for row in table.rows) == len(timed.steps)


def test_the_slowest_launches_of_a_large_model(timed: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_ROWS", 2)
    slow = dataclasses.replace(timed.times[2] or Launch("", (), 0, 0), duration=900)
    x = dataclasses.replace(timed, times=[*timed.times[:2], slow, *timed.times[3:]])
    table = launch_table(x)
    assert [row[0].value for row in table.rows] == [0, 2] and table.omitted == len(x.steps) - 2


def test_names_of_many_layers() -> None:
    assert layers_text(["a", "b", "a"]) == "a, b" and layers_text([f"l{i}" for i in range(15)]).endswith(", l11 … 3 more")


def test_texts_are_bounded_as_they_are_in_the_page() -> None:
    texts = Texts(room=23)
    assert texts.take("a < b\nc") == "a &lt; b\nc" and texts.take("0123456789\nx\ny") == "0123456789\n… 2 further lines"
    assert texts.take("z") == "… 1 further line" and texts.is_full


def test_rows_have_the_numbers_that_they_are_sorted_by(pages: tuple[Any, str, str]) -> None:
    _, plain, timed = pages
    assert 'id="times"' not in plain and 'id="times"' in timed
    rows = re.findall(r"<tr\b.*?</tr>", timed[timed.index('id="launches"') : timed.index('id="kernels"')], re.DOTALL)[1:]
    spent = [float(v) for row in rows for v in re.findall(r'data-v="([^"]+)">[^<]*</td>', row)[1:2]]
    assert len(spent) == len(rows) and all(v > 0 for v in spent)


def test_the_memory_chart() -> None:
    places = [Place("a", const(0), const(1024), 0, 1), Place("b", const(1024), const(3072), 1, 2), Place("c", const(0), const(512), 2, 2)]
    chart = memory_chart(places, {})
    assert chart.count("<title>") == 3 and "Workspace 4 KiB; the largest set that is alive at one step is 4 KiB" in chart
    assert 'x="90.0" y="222.0" width="606.2" height="74.0"' in chart, "a: two of three steps, a quarter of the height, at the bottom"
    assert "needs no workspace" in memory_chart([], {})


def test_typical_values_are_of_the_contract() -> None:
    a, b, c = Dim("a", 0, 2**31 - 1, 1), Dim("b", 200, 300, 1), Dim("c", 0, 100, 48)
    assert typical([a, b, c]) == {a: 128, b: 200, c: 96}


def test_assembly_is_split_by_functions() -> None:
    first, second = "first:\n\tmovq %rax, %rbx\n.LBB0_1:\n\tretq", '"second.i":\n\tnop'
    text = f'\t.file "x"\n{first}\n.Lfunc_end0:\n\t.size first, 3\n{second}\n\t.cfi_endproc\ndata:\n\t.long 3\n'
    assert split_functions(text) == [("first", first), ("second.i", second)]


def test_a_long_fact_is_folded() -> None:
    macros: Any = environment().get_template("macros.html").module
    assert macros.fact("n * 4 < m\nbytes").strip() == "n * 4 &lt; m<br>bytes"
    long = macros.fact("max(" * 500).strip()
    assert long.startswith("<details><summary>max(max(") and "(2000 characters)</summary>" in long and long.count("max(") == 520


def test_places_that_cannot_be_written(pages: tuple[Any, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made for a folder that is missing; the help is Python that makes it."""
    f, _, _ = pages
    absent = tmp_path / "a" / "b" / "r.html"
    made: list[Any] = []
    monkeypatch.setattr("pliant.report.page._page", lambda facts: made.append(facts) or "a page")
    for write in (f.report, f._provenance.profiled.save):
        with pytest.raises(OSError, match="there is no folder") as problem:
            write(absent)
        with pytest.raises(OSError, match="it is a folder"):
            write(tmp_path)
    assert isinstance(problem.value, pliant.Error) and made == []
    exec(problem.value.help, {"os": os})
    f.report(absent)
    assert absent.read_text() == "a page"


def test_the_roofline(timed: Facts) -> None:
    """2,000 operations in 100 ns are 20 GFLOP/s, at 50 for each byte; the limits of 100 GFLOP/s and 1 GB/s meet at 100 for each byte."""
    points = points_of(timed)
    assert {(p.intensity, p.rate) for p in points} == {(50.0, 20e9)} and len(points) == len(timed.numbers)
    picture = str(roofline(timed))
    check(picture)
    assert "arithmetic: 100 GFLOP/s" in picture and "memory: 1 GB/s" in picture and "operations a second" in picture
    assert picture.count("<circle") == len(points) and all(f'href="#kernel-{p.number}"' in picture for p in points)
    line = [tuple(map(float, place.split(","))) for place in re.findall(r'<polyline points="([^"]*)"', picture)[0].split()]
    circles = [tuple(map(float, c)) for c in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', picture)]
    assert line[0][0] < circles[0][0] < line[1][0] and line[1][1] == line[2][1] < circles[0][1], "below the slope, and below the level"


def test_kernels_that_the_roofline_has_no_place_for(timed: Facts) -> None:
    unknown = dataclasses.replace(timed, times=[Launch("k", (), 0, 100, 0, 40, (100,)) for _ in timed.steps])
    assert points_of(unknown) == [] and "<svg" not in roofline(unknown) and "No kernel has" in roofline(unknown)
    assert roofline(dataclasses.replace(timed, times=[None] * len(timed.steps))) == ""


def test_labels_of_equal_points_do_not_cover_each_other(timed: Facts) -> None:
    places = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*class="name"', str(roofline(timed)))
    assert len(places) == len(timed.numbers) > 1
    heights = sorted(float(y) for _, y in places)
    assert all(below - above >= 14 for above, below in itertools.pairwise(heights))


def test_the_legend_of_the_memory_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_ROWS", 11)
    places = [Place(f"t{k}", const(0), const(1024 * (k + 1)), k, k) for k in range(13)]
    chart = str(memory_chart(places, {}))
    check(chart)
    assert re.findall(r'<span class="mono">(t\d+)</span> (\d+ KiB), steps (\d+) to', chart) == [
        (f"t{k}", f"{k + 1} KiB", str(k)) for k in range(12, 2, -1)
    ]
    assert "3 smaller temporaries, of which 2 are not drawn" in chart and "alive, at most 13 KiB" in chart
    colors = dict(re.findall(r'fill="(hsl\([^"]*\))"/></svg><span class="mono">(t\d+)<', chart))
    assert all(f'fill="{color}"><title>' in chart for color in colors)
