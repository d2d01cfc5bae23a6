"""A server of files for tests: with ranges, connections that break, redirects, and a memory of what was asked.

with serving({"/a": b"…"}) as server:
    server.url + "/a", server.asked, server.cut_after
"""

from __future__ import annotations

import hashlib
import io
import json
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """What is served, and how badly."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.redirects: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.cut_after: list[int] = []  # bytes after which the next answers break off
        self.ranges = True
        self.pause = 0.0  # seconds before each 64 KiB
        self.secret: str | None = None  # the Authorization that is needed

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed is no news."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append((self.path, dict(self.headers)))
        if path in self.server.redirects:
            self.send_response(302)
            self.send_header("Location", self.server.redirects[path])
            self.end_headers()
        elif self.server.secret is not None and self.headers.get("Authorization") != self.server.secret:
            self.send_error(401)
        elif path not in self.server.files:
            self.send_error(404)
        else:
            self._send(path, self.server.files[path])

    def _send(self, path: str, body: bytes) -> None:
        wanted = self.headers.get("Range", "") if self.server.ranges else ""
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.send_header("Content-Type", self.server.kinds.get(path, "application/octet-stream"))
        self.end_headers()
        body = body[start:]
        cut = self.server.cut_after.pop(0) if self.server.cut_after else len(body)
        for at in range(0, min(cut, len(body)), 1 << 16):
            time.sleep(self.server.pause)
            self.wfile.write(body[at : min(at + (1 << 16), cut)])
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Server]:
    """A server for the time of a test."""
    server = Server(files)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def sha256(data: bytes) -> str:
    """The checksum of bytes."""
    return hashlib.sha256(data).hexdigest()


def wheel(files: dict[str, bytes]) -> bytes:
    """A wheel that holds these files."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pkg/__init__.py", "raise SystemExit('nothing of a package may run')")
        for name, data in files.items():
            archive.writestr(name, data)
    return raw.getvalue()


def simple_html(name: str, url: str, digest: str) -> bytes:
    """A page of a package index."""
    return f'<!DOCTYPE html><html><body><a href="other-1.0.tar.gz">x</a><a href="{url}#sha256={digest}">{name}</a></body></html>'.encode()


def simple_json(name: str, url: str, digest: str) -> bytes:
    """The same as JSON."""
    return json.dumps({"meta": {"api-version": "1.0"}, "files": [{"filename": name, "url": url, "hashes": {"sha256": digest}}]}).encode()
