"""The backend for pages: the module of the wasm backend, the JavaScript that runs it, and a page with a form for its arguments."""

from __future__ import annotations

import re
from importlib.resources import files as resources

from .base import Exported
from .wasm import Wasm

_SCRIPT = re.compile(rb'<script type="module">(.*?)</script>', re.DOTALL)


class Web(Wasm):
    """The backend for browsers: a folder that any server of files can serve; nothing in it asks another host for anything."""

    def files(self, program: Exported) -> dict[str, bytes]:
        """Return the module, its description and constants, `pliant.js`, and the page as `index.html` and `page.js`.

        The script of the page is a file of its own, because a page under a content security policy runs no script inside of its text.
        """
        source = resources("pliant.codegen").joinpath("web")
        text = source.joinpath("index.html").read_bytes()
        script = _SCRIPT.search(text)
        assert script is not None
        page = text.replace(script[0], b'<script type="module" src="./page.js"></script>')
        named = {"page.js": script[1].strip() + b"\n", "index.html": page}
        return {
            **super().files(program),
            "pliant.js": source.joinpath("pliant.js").read_bytes(),
            **{file: content.replace(b"MODEL", program.name.encode()) for file, content in named.items()},
        }


BACKEND = Web()
