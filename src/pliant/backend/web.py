"""The backend for pages: modules of the wasm backend, the JavaScript that runs them, and a page with a form for the arguments."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files as resources

from ..codegen.link_wasm import STACK
from ..codegen.share_memory import memory_pages, with_shared_memory
from ..target import Target
from ..target.web import fused
from .base import Exported
from .wasm import Wasm

_SCRIPT = re.compile(rb'<script type="module">(.*?)</script>', re.DOTALL)
_BLOCK = 4 << 20  # bytes of the weights with a checksum of their own: what a broken download loses at most


class Web(Wasm):
    """The backend for browsers: a folder that any server of files can serve; nothing in it asks another host for anything.

    Two programs are in it: one for every browser, and `NAME.fused` for those that fuse multiply-add. Each has two modules of the same code:
    one owns its memory, and one imports a memory that threads share.
    """

    def variants(self, target: Target) -> Mapping[str, Target]:
        """Return one further target, for any `target`: `.fused`, the program for browsers that fuse multiply-add.

        The key is what is appended to the name of its files.
        """
        return {".fused": fused()}

    def files(self, program: Exported) -> dict[str, bytes]:
        """Return the files of a page, name -> content: modules, descriptions, constants, JavaScript, `index.html` and its script `page.js`.

        The script of the page is a file of its own, because a page under a content security policy runs no script inside of its text. A
        program with a chat gets the page of a chat instead of the form, and `NAME.chat.json`.
        """
        source = resources("pliant.codegen").joinpath("web")
        text = source.joinpath("index.html" if program.chat is None else "chat.html").read_bytes()
        script = _SCRIPT.search(text)
        assert script is not None
        page = text.replace(script[0], b'<script type="module" src="./page.js"></script>')
        named = {"page.js": script[1].strip() + b"\n", "index.html": page}
        scripts = {entry.name: entry.read_bytes() for entry in source.iterdir() if entry.name.endswith(".js")}
        return {
            **self._programs(program),
            **scripts,
            **({} if program.chat is None else {f"{program.name}.chat.json": program.chat}),
            **{file: content.replace(b"MODEL", program.name.encode()) for file, content in named.items()},
        }

    def _programs(self, program: Exported) -> dict[str, bytes]:
        """Return the files of a program and its variants, name -> content: two modules, a description and the constants of each.

        Constants that are equal are one file. The description names the modules and constants, with checksums of the constants' blocks.
        """
        parts = [super(Web, self).files(p) for p in (program, *program.variants)]
        constants: dict[bytes, str] = {}
        files: dict[str, bytes] = {}
        for p, made in zip((program, *program.variants), parts, strict=True):
            facts = json.loads(made[f"{p.name}.json"])
            module = made[f"{p.name}.wasm"]
            if weights := made.get(f"{p.name}.bin"):
                facts["constants_file"] = constants.setdefault(weights, f"{p.name}.bin")
                facts["constants_blocks"] = {"bytes": _BLOCK, "sha256": _checksums(weights)}
            facts |= {"module": f"{p.name}.wasm", "shared_module": f"{p.name}.shared.wasm"}
            facts |= {"memory_pages": memory_pages(module), "stack_bytes": STACK}
            files |= {f"{p.name}.wasm": module, f"{p.name}.shared.wasm": with_shared_memory(module)}
            if program.chat is not None:
                facts["chat"] = f"{program.name}.chat.json"
            if p is program and program.variants:
                facts["fused"] = f"{program.variants[0].name}.json"
            files[f"{p.name}.json"] = (json.dumps(facts, indent=1) + "\n").encode()
        return files | {name: weights for weights, name in constants.items()}


def _checksums(content: bytes) -> list[str]:
    """Return the SHA-256 digest of each block of 4 MiB, in order, as hexadecimal text; the last block may be shorter."""
    return [hashlib.sha256(content[at : at + _BLOCK]).hexdigest() for at in range(0, len(content), _BLOCK)]


BACKEND = Web()
