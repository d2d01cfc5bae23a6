"""Renders the HTML templates of the report (`templates/`) with jinja2, which escapes every text that a template inserts.

    render("memory.html", boxes=boxes, ...)

A text that is markup already is a `Markup`; jinja2 does not escape it again.
"""

from __future__ import annotations

import functools
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@functools.cache
def environment() -> Environment:
    """Returns the environment of the templates; a name that a template does not get is an error."""
    loader = PackageLoader("pliant.report", "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def render(template: str, **values: Any) -> Markup:
    """Returns the text of a template with the values inserted."""
    return Markup(environment().get_template(template).render(**values))
