"""A small HTTPS client for model downloads: honors proxies and certificates of the environment; credentials never leave their host.

    with request("https://example.org/file", start=1024) as answer:
        answer.status, answer.read(65536)

Credentials are sent only to the host they belong to, never to a host that it redirects to. Redirects from https to http are refused.
"""

from __future__ import annotations

import base64
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO
from urllib.parse import unquote, urlsplit, urlunsplit

from .. import __version__
from ..support.errors import Error
from .pip_settings import setting

TIMEOUT = 30.0  # seconds without receiving a byte
MAX_PAGE = 64 << 20  # bytes of an index page: large packages have listings of some MiB


class DownloadError(Error):
    """Raised for a download that failed."""


class Missing(DownloadError):
    """Raised if the server does not have the resource (404 or 410)."""


class Broken(DownloadError):
    """Raised for a transient failure (broken connection, 429 or 5xx): a retry may succeed."""


@contextmanager
def request(url: str, *, token: str | None = None, accept: str = "*/*", start: int = 0) -> Iterator[http.client.HTTPResponse]:
    """Context manager: gives the response to a GET, from byte `start` on if the server supports ranges.

    Raises network errors and HTTP errors as DownloadError.
    """
    plain, headers = _credentials(url, token)
    headers |= {"User-Agent": f"pliant/{__version__}", "Accept": accept, "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        with _opener().open(urllib.request.Request(plain, headers=headers), timeout=TIMEOUT) as answer:
            yield answer
    except urllib.error.HTTPError as problem:
        problem.close()
        raise _refused(plain, problem.code, token is not None) from None
    except (OSError, http.client.HTTPException, ValueError) as problem:
        reason = getattr(problem, "reason", None) or problem
        kind = Broken if isinstance(reason, ConnectionError | TimeoutError | http.client.HTTPException) else DownloadError
        raise kind(f"`{shown(plain)}` cannot be fetched: {reason}") from None


def page(url: str, *, token: str | None = None, accept: str = "*/*") -> tuple[str, str]:
    """Downloads a page; returns its content type and text. Raises DownloadError if that fails or the page is larger than `MAX_PAGE`."""
    with request(url, token=token, accept=accept) as answer:
        text = answer.read(MAX_PAGE + 1)
        if len(text) > MAX_PAGE:
            raise DownloadError(f"the answer from `{shown(url)}` is larger than {MAX_PAGE >> 20} MiB")
        return answer.headers.get_content_type(), text.decode(errors="replace")


def shown(url: str) -> str:
    """Returns the URL without login and query, for messages."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def _refused(url: str, code: int, with_token: bool) -> DownloadError:
    """Returns the error for an HTTP status code: Missing for 404 and 410, Broken for 429 and from 500 on, else DownloadError.

    `with_token` selects the advice for 401 and 403.
    """
    what = f"`{shown(url)}` cannot be fetched: the server answered {code}"
    if code in (401, 403):
        way = "the token may lack the right to read it" if with_token else "it may need a token (HF_TOKEN) or a login"
        return DownloadError(what, help=way)
    if code in (404, 410):
        return Missing(what)
    return Broken(what) if code >= 500 or code == 429 else DownloadError(what)


def _credentials(url: str, token: str | None) -> tuple[str, dict[str, str]]:
    """Returns the URL without its login, and the Authorization header; `_Redirect` drops the header on redirects to other hosts.

    Raises DownloadError for schemes other than https, http and file.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http", "file"):
        raise DownloadError(f"`{shown(url)}` is no address to fetch from: https is expected")
    login, _, host = parts.netloc.rpartition("@")
    plain = urlunsplit(parts._replace(netloc=host))
    if token is not None:
        return plain, {"Authorization": f"Bearer {token}"}
    if login:
        return plain, {"Authorization": "Basic " + base64.b64encode(unquote(login).encode()).decode()}
    return plain, {}


class _Redirect(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only, never from https to http; keeps credentials only for the same host."""

    max_redirections = 5

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme != "https"):
            raise urllib.error.URLError(f"it redirects to `{shown(newurl)}`, which is not https")
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            following.remove_header("Authorization")
        return following


def _opener() -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_Redirect(), urllib.request.HTTPSHandler(context=_certificates())]
    if proxy := setting("proxy"):
        handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
    return urllib.request.build_opener(*handlers)


def _certificates() -> ssl.SSLContext:
    """Returns an SSL context with the system's certificates and those named by SSL_CERT_FILE, REQUESTS_CA_BUNDLE or pip's settings."""
    context = ssl.create_default_context()
    for file in (os.environ.get("SSL_CERT_FILE"), os.environ.get("REQUESTS_CA_BUNDLE"), setting("cert")):
        if file and os.path.isfile(file):
            context.load_verify_locations(cafile=file)
    return context
