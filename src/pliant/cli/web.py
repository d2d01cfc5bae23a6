"""`pliant web DIR`: serves an exported page on this machine, with the headers that isolate it, so that it may use threads.

It is a server for trying pages, with what any server needs for them: the headers COOP and COEP, MIME types, and ranges for downloads that
go on where they ended.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from . import Usage

TYPES = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".json": "application/json", ".wasm": "application/wasm",
    ".css": "text/css; charset=utf-8", ".png": "image/png", ".jpg": "image/jpeg", ".svg": "image/svg+xml",
}  # fmt: skip
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
    "Accept-Ranges": "bytes",
}
_PART = 1 << 20  # bytes that are read at once
_RANGE = re.compile(r"bytes=(\d{1,15})-(\d{1,15})?")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `pliant web` to the parser."""
    parser.add_argument("folder", help="a folder that `pliant export --target web` wrote")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (default: 8000; 0: any free one)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)")
    parser.add_argument("--json", action="store_true", help="print the address as JSON")


def run(options: argparse.Namespace) -> int:
    """Runs `pliant web`: prints the address (as JSON with `--json`) and serves the folder until Ctrl-C; returns the exit code.

    Raises Usage if the folder has no index.html, or if the server cannot listen on that host and port.
    """
    folder = Path(options.folder)
    if not (folder / "index.html").is_file():
        raise Usage(f"`{options.folder}` has no index.html", "`pliant export MODEL --target web -o DIR` makes such a folder")
    try:
        server = serve(folder, options.host, options.port)
    except (OSError, OverflowError) as problem:
        raise Usage(f"cannot listen on {options.host} port {options.port}: {problem}", "--port 0 takes any free one") from None
    with server:
        address = f"http://{_shown(options.host)}:{server.server_address[1]}/"
        print(json.dumps({"address": address}) if options.json else address, flush=True)
        server.serve_forever()
    return 0


def _shown(host: str) -> str:
    """Returns a host as an address shows it: `localhost` is a secure context in every browser, an IPv6 address has brackets."""
    return "localhost" if host == "127.0.0.1" else f"[{host}]" if ":" in host else host


def _span(asked: re.Match[str], size: int) -> tuple[int, int]:
    """Returns the first byte that a range asks for, and the end behind its last byte, at most `size`.

    A range that begins behind the file has an end that is not behind its first byte.
    """
    return int(asked[1]), min(size, int(asked[2]) + 1) if asked[2] else size


def serve(folder: Path, host: str = "127.0.0.1", port: int = 0, headers: dict[str, str] = HEADERS) -> ThreadingHTTPServer:
    """Returns a server of the files in a folder, which listens already but serves only once `serve_forever` is called.

    Each request has a thread of its own. `headers` are sent with every answer. Port 0 is any free one. Raises OSError if it cannot listen.
    """
    root = folder.resolve()

    class Handler(_Files):
        pass

    Handler.root, Handler.headers_of_all = root, headers

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

    return Server((host, port), Handler)


class _Files(BaseHTTPRequestHandler):
    """The handler of requests: answers GET and HEAD with files below `root`; for everything else the status is 404."""

    root: Path
    headers_of_all: dict[str, str]
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        self._answer(content=True)

    def do_HEAD(self) -> None:
        self._answer(content=False)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, content: bool) -> None:
        """Sends the file that is asked for, or its bytes of a Range header (`bytes=FIRST-` or `bytes=FIRST-LAST`); no content for HEAD.

        The status is 404 if there is no such file, and 416 if the range begins behind its end. Ranges of other forms are ignored.
        """
        path = self._file()
        try:
            file = path.open("rb") if path is not None else None
        except OSError:
            file = None
        if file is None or path is None:
            return self._refuse(HTTPStatus.NOT_FOUND)
        with file:
            size = os.fstat(file.fileno()).st_size
            # ranges of other forms are ignored, as RFC 9110 allows
            asked = _RANGE.fullmatch(self.headers.get("Range", "").strip())
            whole = asked is None
            start, end = (0, size) if asked is None else _span(asked, size)
            if not whole and start >= end:
                return self._refuse(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {"Content-Range": f"bytes */{size}"})
            self.send_response(HTTPStatus.OK if whole else HTTPStatus.PARTIAL_CONTENT)
            own = {} if whole else {"Content-Range": f"bytes {start}-{end - 1}/{size}"}
            own |= {"Content-Type": TYPES.get(path.suffix, "application/octet-stream"), "Content-Length": str(end - start)}
            self._finish_head(own)
            if content:
                self._send(file, start, end)
        return None

    def _file(self) -> Path | None:
        """Returns the file that the request asks for, `index.html` for a folder.

        None if there is none, or it lies outside of `root`, also through `..` or a link, or the path is not valid.
        """
        try:
            path = (self.root / unquote(urlsplit(self.path).path, errors="strict").lstrip("/")).resolve()
            if path.is_dir():
                path /= "index.html"
            inside = path.is_relative_to(self.root) and path.resolve().is_relative_to(self.root)
            return path if inside and path.is_file() else None
        except (ValueError, OSError):  # a zero byte, bytes that are no UTF-8, a name that is too long
            return None

    def _refuse(self, status: HTTPStatus, headers: dict[str, str] | None = None) -> None:
        """Sends a status without a file, with its number and phrase as the text."""
        body = f"{status.value} {status.phrase}\n".encode()
        self.send_response(status)
        self._finish_head({"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _finish_head(self, headers: dict[str, str]) -> None:
        """Sends the headers that every answer has, and those that are given, which win; ends the head."""
        for name, value in {**self.headers_of_all, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, file: BinaryIO, start: int, end: int) -> None:
        """Sends the bytes start..end-1 of a file, in parts of 1 MiB; stops if the browser closes the connection."""
        file.seek(start)
        try:
            while start < end and (part := file.read(min(_PART, end - start))):
                self.wfile.write(part)
                start += len(part)
        except ConnectionError:  # the page is gone
            self.close_connection = True
