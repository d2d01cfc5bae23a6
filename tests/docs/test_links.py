"""Links between documents: each leads to a file and a heading that exist, and the index docs/README.md leads to every page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(DOCS.rglob("*.md"))]
# It lists files that are gone.
OLD_NAMES = DOCS / "renames.md"


def prose(text: str) -> str:
    """A document without its fenced blocks, so that nothing in them counts as a link or a heading."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def links(text: str) -> list[str]:
    """The targets of a document's links to other files or to headings; code in backticks has none."""
    found = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(text)))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings that are the same on GitHub, which keeps each space, and in mkdocs, which joins them."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", re.sub(r"\]\([^)]*\)", "]", h)).strip().lower() for h in headings]
    return {re.sub(r"\s", "-", h) for h in plain} & {re.sub(r"[-\s]+", "-", h) for h in plain}


def broken(page: Path, text: str) -> Iterator[str]:
    """Yields the links that lead nowhere, and those out of docs/, which a site made of this folder does not have."""
    for link in links(text):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve()
        if (page.is_relative_to(DOCS) and not target.is_relative_to(DOCS)) or (name and not target.is_file()):
            yield link
            continue
        if anchor and anchor not in anchors(target.read_text(encoding="utf-8") if name else text):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(broken(page, page.read_text(encoding="utf-8"))) == []


def test_a_link_that_leads_nowhere_is_found() -> None:
    text = "[a](onnx.md) [b](none.md) [c](onnx.md#how-fast) [d](onnx.md#slow) [e](../README.md) [f](#top) [g](#end)\n"
    text += "`[h](none.md)`\n```\n[i](none.md)\n```\n# End\n"
    assert list(broken(DOCS / "new.md", text)) == ["none.md", "onnx.md#slow", "../README.md", "#top"]


def test_the_index_leads_to_every_page() -> None:
    reached = {DOCS / "README.md"}
    new = list(reached)
    while new:
        page = new.pop()
        found = {(page.parent / link.partition("#")[0]).resolve() for link in links(page.read_text(encoding="utf-8"))}
        more = {p for p in found if p.suffix == ".md" and p.is_relative_to(DOCS)} - reached
        reached |= more
        new += more
    assert set(DOCS.rglob("*.md")) - reached == set()
    notebooks = {(DOCS / link).resolve() for link in links((DOCS / "README.md").read_text(encoding="utf-8")) if link.endswith(".ipynb")}
    assert set(DOCS.rglob("*.ipynb")) == notebooks
    assert "docs/README.md" in links((ROOT / "README.md").read_text(encoding="utf-8"))


def test_the_site_has_every_page() -> None:
    """Each page once, in the navigation of mkdocs.yml; design notes are reached from their index. `.ci/docs` builds the site."""
    listed = re.findall(r"^ +- [^:]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    pages = [page for page in PAGES if page.is_relative_to(DOCS) and not re.match(r"\d{4}-", page.name)]
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in pages)


@pytest.mark.parametrize("page", [p for p in PAGES if p != OLD_NAMES], ids=lambda p: str(p.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    """A path in backticks, or after `python`, is one of the repository, or the end of one."""
    text = prose(page.read_text(encoding="utf-8"))
    named = {a or b for a, b in re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|h|js))`|python ((?:[\w.-]+/)+[\w.-]+\.py)", text)}
    assert [name for name in sorted(named) if not any(f.endswith(f"/{name}") for f in files())] == []


@cache
def files() -> list[str]:
    """The paths of the repository's files."""
    folders = ("src", "tests", "docs", "tools", "benchmarks", "examples")
    return [f.as_posix() for folder in folders for f in (ROOT / folder).rglob("*.*")]
