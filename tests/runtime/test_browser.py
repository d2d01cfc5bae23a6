"""Exported pages in a real browser. `.ci/web` runs these tests: they need chromium, node, and the npm package playwright-core."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from exported_models import Interpreted, Model, onnx_cnn, sentence_embedder, stream
from node_programs import _array, _coded, node
from pliant.cli.web import HEADERS, serve
from pliant.llm.page import export_page
from pliant.target import target
from tiny_models import tiny_file, tiny_llm

PACKAGES = os.environ.get("PLIANT_NODE_MODULES")  # a folder `node_modules` with playwright-core
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""

pytestmark = pytest.mark.skipif(not PACKAGES or not CHROMIUM, reason="needs chromium and playwright-core: .ci/web runs it")

# Reads what to do from stdin: an address, a script that runs in the page, and flags of the browser; writes what the script answers.
_DRIVER = """
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
const { packages, chromium: executablePath, flags, url, script, given, shot, size } = JSON.parse(readFileSync(0, "utf8"));
const { chromium } = createRequire(`${packages}/x.js`)("playwright-core");
const args = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", ...flags];
const browser = await chromium.launch({ executablePath, args });
const page = await browser.newPage({ viewport: size ?? { width: 900, height: 900 } });
const said = [], asked = [];
page.on("console", (m) => said.push(`${m.type()}: ${m.text()}`));
page.on("pageerror", (e) => said.push(`error: ${e.message}`));
page.on("request", (r) => asked.push(r.url()));
try {
  await page.goto(url);
  const AsyncFunction = (async () => {}).constructor;
  const value = await new AsyncFunction("page", "given", script)(page, given);
  if (shot) await page.screenshot({ path: shot, fullPage: true });
  await new Promise((done) => process.stdout.write(JSON.stringify({ value, said, asked }), done));
} finally {
  await browser.close();
}
"""

# In the page: calls of a program, coded as in node_programs.py.
_CALL = """
  return page.evaluate(async ({ url, calls, options }) => {
    const { load } = await import("./pliant.js");
    const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const text = (array) => {
      let all = "";
      for (const b of new Uint8Array(array.buffer)) all += String.fromCharCode(b);
      return btoa(all);
    };
    const m = await load(url, options);
    const answers = [];
    for (const call of calls) {
      const inputs = {}, dims = {};
      for (const [name, a] of Object.entries(call)) {
        inputs[name] = a.scalar ?? new globalThis[a.array](bytes(a.data).buffer);
        if (a.dims) dims[name] = a.dims;
      }
      const results = await m.run(inputs, dims);
      answers.push(Object.values(results).map((r) => ({ dims: r.dims, dtype: r.dtype, data: text(r.data) })));
    }
    const { features } = m;
    m.close();
    return { answers, features };
  }, given);
"""


def browse(url: str, script: str, flags: tuple[str, ...] = (), given: Any = None, **more: Any) -> dict[str, Any]:
    """What a script with `page` and `given` answers in a new browser, what the page said, and which addresses it asked for."""
    asked = {"packages": PACKAGES, "chromium": CHROMIUM, "flags": flags, "url": url, "script": script, "given": given, **more}
    command = [node(), "--input-type=module", "-e", _DRIVER]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert all(address.startswith((url, "data:", "blob:")) for address in answer["asked"]), "the page asks somebody else"
    return answer


@contextmanager
def served(folder: Path, headers: dict[str, str] = HEADERS) -> Iterator[str]:
    """The address of a folder, served as `pliant web` does, or with other headers."""
    with serve(folder, headers=headers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://localhost:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


def results(url: str, name: str, model: Model, flags: tuple[str, ...] = (), **options: Any) -> tuple[list[bytes], dict[str, Any]]:
    call = {key: _coded(value) for key, value in model.fresh().items()}
    given = {"url": f"./{name}.json", "calls": [call], "options": options}
    value = browse(url, _CALL, flags, given)["value"]
    return [_array(r).tobytes() for r in value["answers"][0]], value["features"]


MODELS = {"sentence_embedder": sentence_embedder, "onnx_cnn": onnx_cnn, "stream": stream}


@pytest.mark.parametrize("name", MODELS)
def test_models_have_the_same_bits_in_the_browser(name: str, tmp_path: Path) -> None:
    """Fused and not, with one thread and several, isolated and not."""
    model = MODELS[name]()
    pliant.export(model.program, "web", tmp_path, name=name)
    plain = [np.asarray(a).tobytes() for a in Interpreted(model.program, "web").run(model.fresh())]
    fused = [np.asarray(a).tobytes() for a in Interpreted(model.program, "wasm+relaxed-simd").run(model.fresh())]
    no_fma = ("--js-flags=--no-enable-fma3",)
    with served(tmp_path) as url:
        for threads in (1, 2, 4):
            found, features = results(url, name, model, threads=threads)
            assert features["threads"] == threads and features["shared"] and features["fused"] == target("native").has_fma
            assert found == (fused if features["fused"] else plain)
        found, features = results(url, name, model, no_fma)
        assert found == plain and not features["fused"]
    with served(tmp_path, {}) as url:
        found, features = results(url, name, model, fused=False, threads=4)
        assert found == plain and features["threads"] == 1 and not features["shared"]


def test_a_page_that_is_not_isolated_says_so(tmp_path: Path) -> None:
    pliant.export(stream().program, "web", tmp_path, name="stream")
    with served(tmp_path, {}) as url:
        wait = 'await page.waitForSelector("#form:not([hidden])"); return page.textContent("#features");'
        answer = browse(url, wait)
    assert "this page is not isolated" in answer["value"] and any("one thread, because" in line for line in answer["said"])


def test_the_page_keeps_weights_in_the_file_system(tmp_path: Path) -> None:
    pliant.export(sentence_embedder().program, "web", tmp_path, name="embedder")
    script = """
        const ready = async () => {
          await page.waitForSelector("#form:not([hidden])");
          return page.textContent("#features");
        };
        const first = await ready();
        let asked = 0;
        page.on("request", (r) => (asked += r.url().endsWith(".bin") ? 1 : 0));
        await page.reload();
        const second = await ready();
        const kept = asked;
        await page.evaluate(async () => (await import("./pliant.js")).clearCache());
        await page.reload();
        await ready();
        return { first, second, kept, cleared: asked };
    """
    with served(tmp_path) as url:
        value = browse(url, script)["value"]
    assert "weights kept (opfs)" in value["first"] and value["first"] == value["second"]
    assert value["kept"] == 0 and value["cleared"] == 1


@pytest.mark.parametrize("width", [400, 900])
def test_the_form_by_keyboard(tmp_path: Path, width: int) -> None:
    pliant.export(stream().program, "web", tmp_path, name="stream")
    script = """
        await page.waitForSelector("#form:not([hidden])");
        await page.focus("#run");
        await page.keyboard.press("Enter");
        await page.waitForSelector("#answer table");
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        return { wide, status: await page.textContent("#status") };
    """
    with served(tmp_path) as url:
        answer = browse(url, script, size={"width": width, "height": 800})
    assert answer["value"]["wide"] <= 0 and " ms, " in answer["value"]["status"] and answer["said"] == []


def test_the_chat_page(tmp_path: Path) -> None:
    """Written by keyboard; the greedy text is that of `pliant.LLM`, and the page stays responsive."""
    export_page(tiny_file(), tmp_path, name="tiny")
    talk = [{"role": "user", "content": "Hi"}]
    script = """
        await page.waitForSelector("#form:not([hidden])");
        await page.keyboard.type("Hello");
        await page.keyboard.press("Enter");
        await page.waitForFunction(() => document.getElementById("status").textContent.startsWith("first token"));
        const shown = await page.$$eval(".said", (all) => all.map((e) => e.className));
        const text = await page.evaluate(async (messages) => {
          const m = await (await import("./pliant.js")).load("./tiny.json");
          const answer = await m.chat().completions.create({ messages, temperature: 0, max_tokens: 20 });
          return answer.choices[0].message.content;
        }, given);
        return { shown, text, status: await page.textContent("#status") };
    """
    with served(tmp_path) as url:
        answer = browse(url, script, given=talk)
    assert answer["value"]["shown"] == ["said user", "said assistant"] and answer["said"] == []
    if target("native").has_fma:
        assert answer["value"]["text"] == str(tiny_llm().generate(talk, temperature=0.0, max_tokens=20))
