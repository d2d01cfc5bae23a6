"""`pliant web`: files of one folder with the headers of isolated pages, ranges, and nothing else."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.cli import main
from pliant.cli.web import serve

Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("web")
    (base / "secret.txt").write_text("secret")
    site = base / "site"
    (site / "sub").mkdir(parents=True)
    (site / "index.html").write_text("<p>page")
    (site / "sub" / "index.html").write_text("<p>sub")
    (site / "pliant.js").write_text("export {}")
    (site / "m.wasm").write_bytes(b"\0asm")
    (site / "m.json").write_text("{}")
    (site / "a name.bin").write_bytes(bytes(range(256)) * 20_000)  # larger than what is read at once
    (site / "link.txt").symlink_to(base / "secret.txt")
    (base / "site-two").mkdir()
    (base / "site-two" / "x").write_text("secret")
    return site


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    with serve(folder) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def ask(port: int, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.putrequest(method, path, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, {k.lower(): v for k, v in answer.getheaders()}, content


@pytest.mark.parametrize(
    ("path", "kind", "content"),
    [
        ("/", "text/html; charset=utf-8", b"<p>page"),
        ("/index.html?x=1", "text/html; charset=utf-8", b"<p>page"),
        ("/sub", "text/html; charset=utf-8", b"<p>sub"),
        ("/pliant.js", "text/javascript; charset=utf-8", b"export {}"),
        ("/m.wasm", "application/wasm", b"\0asm"),
        ("/m.json", "application/json", b"{}"),
        ("/a%20name.bin", "application/octet-stream", bytes(range(256)) * 20_000),
    ],
)
def test_files_and_headers(port: int, path: str, kind: str, content: bytes) -> None:
    status, headers, found = ask(port, path)
    assert (status, headers["content-type"], found) == (200, kind, content)
    assert headers["cross-origin-opener-policy"] == "same-origin" and headers["cross-origin-embedder-policy"] == "require-corp"
    assert headers["x-content-type-options"] == "nosniff"
    status, heads, found = ask(port, path, "HEAD")
    assert (status, found) == (200, b"") and heads["content-length"] == str(len(content))


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/sub/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e%2fsite-two/x",
        "//../secret.txt",
        "/link.txt",
        "/....//secret.txt",
        "/..\\secret.txt",
        "/%00",
        "/%ff",
        "/nothing",
        "/" + "x" * 5000,
        "http://127.0.0.1/../secret.txt",
        "/m.json/",
        "*",
    ],
)
def test_nothing_else_is_found(port: int, path: str) -> None:
    status, _, content = ask(port, path)
    assert (status == 404 or path == "/m.json/") and b"secret" not in content


@pytest.mark.parametrize(
    ("asked", "span"), [("bytes=100-", (100, 5_120_000)), ("bytes=0-0", (0, 1)), ("bytes=5119990-9999999", (5_119_990, 5_120_000))]
)
def test_ranges(port: int, asked: str, span: tuple[int, int]) -> None:
    status, headers, content = ask(port, "/a%20name.bin", Range=asked)
    start, end = span
    assert status == 206 and content == (bytes(range(256)) * 20_000)[start:end]
    assert headers["content-range"] == f"bytes {start}-{end - 1}/5120000"


@pytest.mark.parametrize("asked", ["bytes=5120000-", "bytes=7-3"])
def test_ranges_that_are_refused(port: int, asked: str) -> None:
    status, headers, _ = ask(port, "/a%20name.bin", Range=asked)
    assert status == 416 and headers["content-range"] == "bytes */5120000"


@pytest.mark.parametrize("asked", ["bytes=-5", "lines=1-2", "bytes=0-1,4-5", "bytes=" + "9" * 400 + "-"])
def test_ranges_of_other_forms_are_ignored(port: int, asked: str) -> None:
    status, headers, content = ask(port, "/a%20name.bin", Range=asked)
    assert status == 200 and len(content) == 5_120_000 and "content-range" not in headers


def test_other_methods_are_refused(port: int) -> None:
    assert ask(port, "/", "POST", **{"Content-Length": "0"})[0] == 501


def test_the_command_prints_its_address(folder: Path) -> None:
    command = [sys.executable, "-m", "pliant", "web", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        try:
            assert address.startswith("http://localhost:") and ask(int(address.rstrip("/").rpartition(":")[2]), "/")[2] == b"<p>page"
        finally:
            process.terminate()


def test_a_folder_without_a_page_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["web", str(tmp_path)]) == 2
    assert "has no index.html" in capsys.readouterr().err
    (tmp_path / "index.html").write_text("")
    assert main(["web", str(tmp_path), "--port", "70000"]) == 2
    assert "cannot listen" in capsys.readouterr().err
