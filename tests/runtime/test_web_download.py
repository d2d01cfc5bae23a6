"""Weights of exported programs in node: verified while they arrive, resumed where a connection broke, kept between visits."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from node_programs import RUNTIME, node
from pliant import Tensor, dim, f32, function

n = dim("n", max=8)
W = np.random.default_rng(0).standard_normal((1500, 1600)).astype(np.float32)  # 9.6 MB: three blocks


@function
def layer(x: Tensor[f32, n, 1500]) -> Tensor[f32, n, 1600]:
    return x @ W


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    node()
    folder = tmp_path_factory.mktemp("site")
    pliant.export(layer, "web", folder)
    return folder


@contextmanager
def served(folder: Path, breaks: list[int], ranges: bool = True) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """A server that breaks off its n-th answer with weights after `breaks[n]` bytes, and what it was asked for: names and first bytes."""
    asked: list[tuple[str, int]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.lstrip("/")
            content = (folder / name).read_bytes()
            start = int(self.headers.get("Range", "bytes=0-")[6:-1]) if ranges else 0
            asked.append((name, int(self.headers.get("Range", "bytes=0-")[6:-1])))
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = start + breaks.pop(0) if name.endswith(".bin") and breaks else len(content)
            self.wfile.write(content[start:end])

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/layer.json", asked
        finally:
            server.shutdown()
            thread.join()


# A browser's Cache, in node: what `caches.open` gives, kept as files of a folder.
_CACHE = """
import { readFile, writeFile } from "node:fs/promises";
const file = (request) => `${folder}/${new URL(request.url).pathname.slice(1).replaceAll("/", "-")}`;
globalThis.caches = { open: async () => ({
  match: async (r) => readFile(file(r)).then((c) => new Response(c), () => undefined),
  put: async (r, answer) => writeFile(file(r), new Uint8Array(await answer.arrayBuffer())),
}) };
"""

_SCRIPT = """
const progress = [];
try {
  const m = await load(url, { worker: false, threads: 1, ...options, onProgress: ({ file, loaded, cached }) => {
    if (file.endsWith(".bin")) progress.push([loaded, Boolean(cached)]);
  } });
  const { ...results } = await m.run({ x: new Float32Array(1500).fill(1) });
  const bytes = Buffer.from(Object.values(results)[0].data.buffer);
  console.log(JSON.stringify({ progress, y: bytes.toString("hex"), kept: m.features.cache }));
} catch (error) {
  console.log(JSON.stringify({ progress, error: `${error.name}: ${error.message}` }));
}
"""


def visit(url: str, folder: Path | None = None, before: str = "", **options: Any) -> dict[str, Any]:
    """What a page would see that loads the program and calls it."""
    given = f"const url = {json.dumps(url)}, options = {json.dumps(options)}, folder = {json.dumps(str(folder))};"
    cache = _CACHE if folder else ""
    text = f"{given}\n{cache}\n{before}\nconst {{ load }} = await import({json.dumps(RUNTIME.as_uri())});\n{_SCRIPT}"
    done = subprocess.run([node(), "--input-type=module", "-e", text], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


BLOCK = 4 << 20
SIZE = 1500 * 1600 * 4


def right(said: dict[str, Any]) -> bool:
    y = np.frombuffer(bytes.fromhex(said["y"]), np.float32)
    return bool(np.allclose(y, W.astype(np.float64).sum(axis=0), rtol=1e-4, atol=1e-3))


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_download_goes_on_after_the_last_whole_block(site: Path, ranges: bool) -> None:
    with served(site, [BLOCK + 1000, BLOCK // 2 if ranges else 2 * BLOCK - 5], ranges) as (url, asked):
        said = visit(url)
    assert right(said) and [p[0] for p in said["progress"]] == [BLOCK, 2 * BLOCK, SIZE]
    assert [start for name, start in asked if name.endswith(".bin")] == [0, BLOCK, BLOCK]


def test_a_download_that_always_breaks_is_an_error(site: Path) -> None:
    with served(site, [100] * 9) as (url, asked):
        said = visit(url, before="const wait = setTimeout; globalThis.setTimeout = (f) => wait(f, 1);")
    assert "error" in said and len([1 for name, _ in asked if name.endswith(".bin")]) == 4


def test_kept_weights_are_not_downloaded_again(site: Path, tmp_path: Path) -> None:
    with served(site, [BLOCK + 10, 0, 0, 0]) as (url, asked):  # the first visit ends after one block
        first = visit(url, tmp_path, cache="cache", before="const wait = setTimeout; globalThis.setTimeout = (f) => wait(f, 1);")
        assert "error" in first and len(list(tmp_path.iterdir())) == 1
        second = visit(url, tmp_path, cache="cache")
        assert right(second) and second["kept"] == "cache" and second["progress"][0] == [BLOCK, True]
        assert asked[-1][1] == BLOCK
        before = len(asked)
        third = visit(url, tmp_path, cache="opfs")  # node has no such file system: the Cache is next
        assert right(third) and all(cached for _, cached in third["progress"])
        assert not any(name.endswith(".bin") for name, _ in asked[before:])


def test_kept_weights_that_are_damaged_are_downloaded_again(site: Path, tmp_path: Path) -> None:
    with served(site, []) as (url, asked):
        assert right(visit(url, tmp_path, cache="cache"))
        middle = next(p for p in tmp_path.iterdir() if p.name.endswith("-1"))
        content = bytearray(middle.read_bytes())
        content[5] ^= 1
        middle.write_bytes(content)
        said = visit(url, tmp_path, cache="cache")
        assert right(said) and [cached for _, cached in said["progress"]] == [True, False, False] and asked[-1][1] == BLOCK
        assert middle.read_bytes() != bytes(content)


def test_weights_that_cannot_be_kept_are_used(site: Path, tmp_path: Path) -> None:
    full = """globalThis.caches = {
        open: async () => ({ match: async () => undefined, put: async () => { throw new Error("the disk is full"); } }),
    };"""
    with served(site, []) as (url, _):
        assert right(visit(url, tmp_path, before=full, cache="cache"))


@pytest.mark.parametrize("subtle", [True, False])
def test_damaged_weights_are_refused(site: Path, tmp_path: Path, subtle: bool) -> None:
    """With the browser's digest, and with our own, which pages without https need."""
    for file in site.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    content = bytearray((site / "layer.bin").read_bytes())
    content[BLOCK + 77] ^= 64
    (tmp_path / "layer.bin").write_bytes(content)
    before = "" if subtle else 'Object.defineProperty(globalThis, "crypto", { value: {} });'
    said = visit((tmp_path / "layer.json").as_uri(), before=before)
    assert said["error"].startswith(f"PliantError: layer.bin is damaged: bytes {BLOCK} to {2 * BLOCK} have another checksum\nhelp: ")
    (tmp_path / "layer.bin").write_bytes(content[:-4])
    with served(tmp_path, []) as (url, _):
        assert f"layer.bin has {SIZE - 4} bytes, expected {SIZE}" in visit(url, before=before)["error"]


def test_our_own_digest_is_sha_256() -> None:
    rng = np.random.default_rng(0)
    messages = [rng.integers(0, 256, size, dtype=np.uint8).tobytes() for size in (*range(130), 1000, 65_537)]
    text = f"""
        import {{ digest }} from {json.dumps(RUNTIME.with_name("sha256.js").as_uri())};
        const all = {json.dumps([m.hex() for m in messages])};
        console.log(JSON.stringify(all.map((m) => Buffer.from(digest(new Uint8Array(Buffer.from(m, "hex")))).toString("hex"))));
    """
    done = subprocess.run([node(), "--input-type=module"], input=text, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == [hashlib.sha256(m).hexdigest() for m in messages]
