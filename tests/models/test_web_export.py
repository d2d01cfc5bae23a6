"""`pliant export MODEL --target web`: a folder whose module equals the interpreter, and whose page asks nobody else."""

from __future__ import annotations

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import pliant
from exported_models import Interpreted, stream
from node_programs import RUNTIME, node, run_in_node


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    pliant.export(stream().program, "web", folder, name="stream")
    return folder


def test_the_files(site: Path) -> None:
    modules = {f"stream{fused}{shared}.wasm" for fused in ("", ".fused") for shared in ("", ".shared")}
    scripts = {path.name for path in RUNTIME.parent.glob("*.js")}
    assert {"pliant.js", "engine.js", "worker.js", "thread.js"} <= scripts
    assert {f.name for f in site.iterdir()} == {"index.html", "page.js", "stream.json", "stream.fused.json"} | modules | scripts
    assert not any("MODEL" in (site / name).read_text(encoding="utf-8") for name in ("index.html", "page.js"))


def test_the_module_equals_the_interpreter(site: Path) -> None:
    model = stream()
    ours, theirs = model.fresh(), model.fresh()
    (results,) = run_in_node(site, "stream", [ours], runtime=site / "pliant.js")
    expected = Interpreted(model.program, "web").run(theirs)
    assert [a.tobytes() for a in results] == [a.tobytes() for a in expected]
    assert np.array_equal(ours["past"], theirs["past"])


def test_code_is_that_of_wasm_with_vectors_and_atomics(site: Path, tmp_path: Path) -> None:
    pliant.export(stream().program, "wasm+simd128+atomics", tmp_path, name="stream")
    assert (tmp_path / "stream.wasm").read_bytes() == (site / "stream.wasm").read_bytes()


class _Page(HTMLParser):
    """Collects what a page loads, the texts of its scripts, and handlers in attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.inline: list[str] = []
        self.ids: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href")]
        self.inline += [value or "" for name, value in attrs if name.startswith("on")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.inside = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside and data.strip():
            self.inline.append(data)


def test_the_page_asks_nobody_else_and_runs_under_a_policy(site: Path) -> None:
    page = _Page()
    page.feed((site / "index.html").read_text(encoding="utf-8"))
    assert page.inline == [] and page.loaded == ["data:,", "./page.js"]
    for script in sorted(f.name for f in site.glob("*.js")):
        text = (site / script).read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!pliant\.invalid/)|\beval\(|new Function", text)
        subprocess.run([node(), "--check", site / script], check=True, timeout=60)
    used = set(re.findall(r'\bat\("(\w+)"\)', (site / "page.js").read_text(encoding="utf-8")))
    assert used and used <= set(page.ids)


# What a page needs of a document: elements with properties and children, in the order of the page.
_DOCUMENT = """
import { readFileSync, writeSync } from "node:fs";
class Element {
  constructor(tag) { this.tag = tag; this.children = []; this.listeners = {}; }
  append(...more) { this.children.push(...more); }
  replaceChildren(...more) { this.children = more; }
  addEventListener(name, fn) { this.listeners[name] = fn; }
  get text() { return this.textContent ?? this.children.map((c) => (typeof c === "string" ? c : c.text)).join(" "); }
  fields() { return [...(this.name ? [this] : []), ...this.children.filter((c) => c instanceof Element).flatMap((c) => c.fields())]; }
}
const ids = {};
const baseURI = process.argv[1];
globalThis.document = { baseURI, createElement: (tag) => new Element(tag), getElementById: (id) => (ids[id] ??= new Element(id)) };
globalThis.FormData = class {
  constructor() { this.fields = [...document.getElementById("dims").fields(), ...document.getElementById("arguments").fields()]; }
  get(name) {
    const field = this.fields.find((f) => f.name === name);
    return field.tag === "select" ? field.children.find((o) => o.selected).value : String(field.value ?? "");
  }
};
await import(new URL("page.js", baseURI));
const shown = [document.getElementById("status").text];
const form = document.getElementById("form");
const answer = async () => {
  await form.listeners.submit({ preventDefault() {} });
  return document.getElementById("answer").text;
};
const fields = new FormData().fields;
const choose = (name, value) => fields.find((f) => f.name === name).children.forEach((o) => (o.selected = o.value === value));
choose("how.x", "ones");
choose("how.past", "zeros");
shown.push(await answer());
fields.find((f) => f.name === "dim.n").value = "65";
shown.push(await answer());
writeSync(1, JSON.stringify({ hidden: form.hidden, names: fields.map((f) => f.name), shown }));
"""


def test_the_page_has_a_form_and_shows_results_and_errors(site: Path) -> None:
    command = [node(), "--input-type=module", "-e", _DOCUMENT, (site / "index.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    page = json.loads(done.stdout)
    assert page["hidden"] is False and page["names"][:3] == ["dim.n", "how.x", "file.x"]
    ready, result, refused = page["shown"]
    assert ready.startswith("ready after")
    assert "f32[8, 12]" in result and "0.761594" in result  # tanh(1): the state is 0
    assert "f32[12]" in result and "0.250000" in result  # a quarter of the mean goes into the state
    assert "`n` = 65 is outside its contract: n in 0..64" in refused


@pytest.mark.parametrize("name", ["web+simd128", "web@linux", "llvm:web"])
def test_the_name_takes_nothing(name: str) -> None:
    from pliant.support.errors import UnsupportedError
    from pliant.target import target

    with pytest.raises(UnsupportedError):
        target(name)
