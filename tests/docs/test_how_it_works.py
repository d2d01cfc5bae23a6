"""docs/how_it_works.md is what its tool writes: the page shows what the compiler does today."""

from __future__ import annotations

import how_it_works


def test_the_page_is_current() -> None:
    assert how_it_works.PAGE.read_text(encoding="utf-8") == how_it_works.page(), "run `python tools/how_it_works.py --write`"


def test_the_page_shows_every_step() -> None:
    from pliant.pipeline import STEPS

    text = how_it_works.page()
    assert [s.name for s in STEPS if f"`{s.name}`" not in text] == ["emit"]
