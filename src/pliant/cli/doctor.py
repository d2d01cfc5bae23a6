"""`pliant doctor`: shows the installation, the CPU, and its measured peak performance; `pliant doctor model.gguf` checks a language model.

It must not fail because something is missing: each problem becomes a line with a suggestion, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from typing import Any

from ..support.units import in_bytes, per_second
from . import progress
from .cache import entries
from .facts import Facts, known_facts, measured


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `pliant doctor` to the parser."""
    parser.add_argument("model", nargs="?", help="a language model that talks nonsense: its template, tokenizer, tensors and logits")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--no-measure", action="store_true", help="skip the performance measurements, which take a second or two")


def run(options: argparse.Namespace) -> int:
    """Runs `pliant doctor`: collects facts about the installation and prints them; returns the exit code, 1 if there are problems."""
    if options.model is not None:
        return _check_model(options)
    facts = known_facts()
    if not options.no_measure:
        measured(facts)
    if options.json:
        print(json.dumps({**facts.found, "problems": [{"what": what, "help": help_} for what, help_ in facts.problems]}, indent=2))
    else:
        print(text(facts))
    return 1 if facts.problems else 0


def _check_model(options: argparse.Namespace) -> int:
    """Checks a language model and prints each result as it is known; returns 1 if a check found a fault."""
    from ..llm.locate import locate
    from ..llm.model_checks import model_checks

    checks = []
    for check in model_checks(locate(options.model, offline=True), progress):
        checks.append(check)
        progress("")
        if not options.json:
            print(
                f"{check.name:10} {'problem: ' + check.fault if check.fault else 'ok'}{': ' + check.text if check.text else ''}", flush=True
            )
    if options.json:
        print(json.dumps([{"name": c.name, "fault": c.fault, "text": c.text} for c in checks], indent=2))
    return 1 if any(c.fault for c in checks) else 0


def text(facts: Facts) -> str:
    """Returns the facts and problems as text for the terminal."""
    width = min(shutil.get_terminal_size((120, 24)).columns, 140)
    lines = []
    for name, value in rows(facts.found):
        lines += textwrap.wrap(value, width, initial_indent=f"{name:14}", subsequent_indent=" " * 14, break_on_hyphens=False) or [name]
    for what, help_ in facts.problems:
        lines += ["", f"problem: {what}", f"help: {help_}"] if help_ else ["", f"problem: {what}"]
    return "\n".join(lines)


def rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns the name and the text of each fact about the installation."""
    python, llvm, machine, threads = found["python"], found["llvmlite"], found["target"], found["threads"]
    cache, rates = found["code_cache"], found["measured"]
    lines = [
        ("Pliant", found["pliant"]),
        ("Python", f"{python['version']} ({python['implementation']}), {python['executable']}"),
        ("numpy", found["numpy"] or "missing"),
        ("LLVM", f"{llvm['llvm']} (llvmlite {llvm['version']})" if llvm else "missing"),
        ("extras", ", ".join(f"{n} {x['version'] or 'missing: ' + x['help']}" for n, x in found["extras"].items())),
        ("system", found["system"] + ("" if found["system_is_tested"] else ", where the tests have not been run")),
        ("CPU", f"{found['cpu']}, {found['processors']} processor{'s' * (found['processors'] != 1)}"),
    ]
    if machine:
        caches = machine["caches"]
        levels = [f"{level.upper()} {in_bytes(caches[level])}" for level in ("l1", "l2", "l3") if caches[level]]
        vectors = f"{machine['vector_bits']}-bit vectors in {machine['vector_registers']} registers"
        lines += [
            ("target", f"native: {machine['arch']}, tuned for {machine['tune']}, {vectors}"),
            ("features", " ".join(machine["features"])),
            ("caches", f"{', '.join(levels)}, lines of {caches['line']} bytes"),
        ]
    if threads:
        lines.append(("threads", f"{threads['count']} ({threads['rule']})"))
    if cache["folder"] is None:
        lines.append(("code cache", "none: there is no home folder"))
    else:
        size = f"{entries(cache['entries'])}, {in_bytes(cache['bytes'])} of at most {in_bytes(cache['limit_bytes'])}"
        lines.append(("code cache", f"{cache['folder']}, {size}, {'writable' if cache['writable'] else 'not writable'}"))
    if rates:
        lines.append(("multiply-add", by_threads(rates["fma_flop_per_second"], "FLOP")))
        lines.append(("read memory", by_threads(rates["read_bytes_per_second"], "B")))
    return lines


def by_threads(rates: dict[str, float], unit: str) -> str:
    """Returns rates by number of threads as text: `98.1 GFLOP/s on 1 thread, 196 GFLOP/s on 2`."""
    first, *others = rates.items()
    parts = [f"{per_second(first[1], unit)} on {first[0]} thread", *(f"{per_second(rate, unit)} on {count}" for count, rate in others)]
    return ", ".join(parts)
