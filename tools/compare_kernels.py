"""Which kernels have other machine code, or other results, in one commit than in another.

    python tools/compare_kernels.py main                      # the working tree against the commit `main`
    python tools/compare_kernels.py main HEAD --cpu x86-64-v3 --groups sizes models
    python tools/compare_kernels.py main --results            # programs are run as well, and results compared bit for bit
    python tools/compare_kernels.py main --dump /tmp/changed  # scheduled program and assembly of what differs, before and after

The programs are those of `kernel_corpus.py`. Each is compiled by the compiler of either commit (in a process and a worktree of its own)
for a fixed CPU, kernel by kernel, so that code does not depend on the machine nor on what else is in a program. Kernels with equal object
code need no timing, nor do those in which only constants differ (estimates that decide how many threads share a loop, for example), which
are told apart. The exit status is 1 if something differs, or if nothing of a group could be compared.

Code of a CPU that this machine is not can be compared, but not run: `--results` is for levels that it has.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
GROUPS = ("schedule", "loops", "ops", "graphs", "sizes", "models")
# Where older commits have what the corpus and this file import (docs/renames.md).
OLDER = {
    "pliant.codegen.background_compile": "pliant.codegen.pieces",
    "pliant.graph.op_table": "pliant.graph.operators",
    "pliant.lower.host.host": "pliant.lower.host",
    "pliant.lower.ops.lower_ops": "pliant.lower.from_ops",
    "pliant.lower.schedule_kernels": "pliant.lower.kernels",
    "pliant.runtime.code_cache": "pliant.runtime.cache",
}


# What one compiler makes of the corpus.


def measure(options: argparse.Namespace) -> None:
    """Write what the compiler that is loaded makes of the corpus: for each program its kernels, and its results if these are asked for."""
    _let_older_compilers_read_the_corpus()
    from kernel_corpus import corpus

    names = None if options.names is None else set(Path(options.names).read_text().splitlines())
    with open(options.measure, "wb") as file:
        for item in corpus(options.groups):
            if options.only in item.name and (names is None or item.name in names):
                pickle.dump((item.name, _measured(item, options)), file)


def _let_older_compilers_read_the_corpus() -> None:
    """Give the modules of older commits the names that the corpus imports them by."""
    from pliant.sym import expr

    older = [(new, old) for new, old in OLDER.items() if not _is_there(new) and _is_there(old)]
    for new, old in older:
        sys.modules[new] = import_module(old)
    if older:
        import pliant

        vars(pliant.ops)["__getattr__"] = _missing_operator

    for name in ("conditions", "float_bits", "function_names", "hash_consing", "text", "walk"):
        if find_spec(f"pliant.sym.{name}") is None:
            sys.modules[f"pliant.sym.{name}"] = expr
            if name == "hash_consing":
                expr.hash_consed = expr.Expr.__new__  # type: ignore[attr-defined]


def _missing_operator(name: str) -> Any:
    """An operator that the compiler does not have yet: the programs that call it are refused, the others are compared."""
    if name.startswith("_"):
        raise AttributeError(name)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"there is no operator {name}")

    return refuse


def _is_there(module: str) -> bool:
    """Whether the compiler that is loaded has a module."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even its package
        return False


def _measured(item: Any, options: argparse.Namespace) -> dict[str, Any]:
    from pliant.api import program_of
    from pliant.loop.stmt import Func
    from pliant.lower.schedule_kernels import Kernels
    from pliant.pipeline import compile_as_far_as
    from pliant.target import target

    machine = target(f"llvm:{options.cpu}")
    try:
        source = item.program()
        program, made = None, Kernels(machine)
        if isinstance(source, Func):  # which need not be a whole program
            schedule = getattr(made, "schedule_kernel", None) or made.make_ready  # its name in older commits
            scheduled = [schedule(source, checked=False).func]
        else:
            program = program_of(source)
            state = compile_as_far_as("schedule", program, machine)
            scheduled, made = _scheduled(state), state.kernels or made
        kernels = [_kernel(f, machine, text=options.names is not None) for f in scheduled]
        found: dict[str, Any] = {"kernels": kernels, "rules": [(r.program, r.why) for r in made.rules()]}
        if options.results and program is not None:
            found["results"] = _results(program, item.arguments(), machine)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
    return found


def _scheduled(state: Any) -> list[Any]:
    """The loop programs of a program, each once, those that run when it is loaded too."""
    from pliant.lower.schedule_kernels import Kernels
    from pliant.program import Program

    found = list(Program.of(state.function).kernels)
    if state.load is not None:
        found += Program.of(Kernels(state.target).function(state.load)).kernels
    return found


def _kernel(func: Any, machine: Any, text: bool) -> dict[str, str]:
    from pliant.codegen.emit import emit_assembly
    from pliant.codegen.llvm import compile_module, generate

    attrs = func.attrs  # a mapping in older commits
    if (attrs.get("external") if isinstance(attrs, dict) else attrs.external) is not None:
        return {"name": func.name, "code": ""}
    module = generate([func], machine)
    made = {"name": func.name, "code": hashlib.sha256(compile_module(module).code).hexdigest()}
    return made | ({"program": str(func), "assembly": emit_assembly(module.text, machine)} if text else {})


def _results(program: Any, arguments: Sequence[Any] | None, machine: Any) -> list[Any] | None:
    import numpy as np

    import pliant

    if arguments is None:
        return None
    made = pliant.compile(program, target=machine)(*arguments)
    return [np.array(a) for a in (made if isinstance(made, tuple) else (made,))]


# Two of them side by side.


@contextmanager
def _tree(commit: str | None) -> Iterator[Path]:
    """The source of a commit; the working tree for None."""
    if commit is None:
        yield ROOT
        return
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(at), commit], cwd=ROOT, check=True)
        try:
            yield at
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(at)], cwd=ROOT, check=True)


def _made_by(commit: str | None, options: argparse.Namespace, names: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    """What the compiler of a commit makes, by the names of programs; for some `names`, with the text of programs and code."""
    with _tree(commit) as tree, tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "made"
        command = [sys.executable, __file__, "-", "--measure", str(out), "--cpu", options.cpu, "--only", options.only]
        command += ["--groups", *options.groups]
        if names is not None:
            (Path(scratch) / "names").write_text("\n".join(names))
            command += ["--names", f"{scratch}/names"]
        elif options.results:
            command.append("--results")
        # Sets of objects are walked in the same order by both.
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PLIANT_CACHE": f"{scratch}/cache", "PYTHONHASHSEED": "0"}
        subprocess.run(command, env=environment, check=True)
        found: dict[str, dict[str, Any]] = {}
        with open(out, "rb") as file:
            while file.peek(1):
                name, made = pickle.load(file)
                found[name] = made
    return found


def compare(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any] | None:
    """What differs between two records of one program; None where nothing does."""
    if "error" in before or "error" in after:
        errors = before.get("error"), after.get("error")
        return None if errors[0] == errors[1] else {"error": errors}
    found: dict[str, Any] = {}
    codes = [[k["code"] for k in made["kernels"]] for made in (before, after)]
    if codes[0] != codes[1]:
        found["kernels"] = _changed_kernels(before["kernels"], after["kernels"])
        found["rules"] = [pair for pair in zip(before["rules"], after["rules"], strict=False) if pair[0] != pair[1]]
    worst = _worst(before.get("results"), after.get("results"))
    return found | ({"results": worst} if worst is not None else {}) or None


def _changed_kernels(before: list[dict[str, str]], after: list[dict[str, str]]) -> list[str]:
    """The names of kernels whose code differs; all of them where there are more or less than before."""
    if len(before) != len(after):
        return [f"{', '.join(k['name'] for k in before)} -> {', '.join(k['name'] for k in after)}"]
    return [b["name"] for b, a in zip(before, after, strict=True) if b["code"] != a["code"]]


def _worst(before: list[Any] | None, after: list[Any] | None) -> str | None:
    """How far results are apart, relative to the largest of each; None where all bits are the same."""
    import numpy as np

    if before is None or after is None:
        return None
    parts = []
    for n, (b, a) in enumerate(zip(before, after, strict=True)):
        if b.shape != a.shape or b.dtype != a.dtype:
            parts.append(f"result {n} was {b.dtype}{b.shape}, is {a.dtype}{a.shape}")
        elif b.tobytes() != a.tobytes():
            wide = [np.nan_to_num(x.astype(np.float64)) for x in (b, a)]
            parts.append(f"result {n} by {np.abs(wide[0] - wide[1]).max() / max(np.abs(wide[0]).max(), 1e-300):.1e}")
    return ", ".join(parts) or None


def _only_constants(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether two programs have the same instructions, with other numbers in them."""
    texts = [[_without_numbers(k.get("assembly", "")) for k in made.get("kernels", ())] for made in (before, after)]
    return bool(texts[0]) and texts[0] == texts[1]


def _without_numbers(assembly: str) -> str:
    """The instructions of an assembly text: immediates and data as `#`, labels by their order, addresses as they are."""
    text = re.sub(r"[ \t]*#.*", "", assembly)
    text = re.sub(r"\.(quad|long)\t[-\w]+", r".\1\t#", text)
    text = re.sub(r"\$-?(0x)?[0-9a-f]+\b", "$#", text)
    labels = {name: f"L{n}" for n, name in enumerate(re.findall(r"^([^\s:]+):", text, re.MULTILINE))}
    return re.sub(r"(?<![%\w.])[\w.$]+", lambda m: labels.get(m[0], m[0]), text)


def _report(name: str, difference: dict[str, Any], same: bool) -> None:
    print(name + (" (only constants)" if same else ""))
    if "error" in difference:
        before, after = difference["error"]
        print(f"  {'was refused: ' + before if before else 'compiled'}; {'is refused: ' + after if after else 'compiles'}")
        return
    if "kernels" in difference:
        print(f"  other code: {', '.join(difference['kernels'])}")
    for (_, before), (program, after) in difference.get("rules", ()):
        print(f"    {program}\n      was: {before}\n      is:  {after}")
    if "results" in difference:
        print(f"  other results: {difference['results']}")


def _dump(folder: Path, name: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Writes program and assembly of kernels whose code differs."""
    folder.mkdir(parents=True, exist_ok=True)
    for n, (b, a) in enumerate(zip(before.get("kernels", ()), after.get("kernels", ()), strict=False)):
        if b["code"] == a["code"]:
            continue
        for side, kernel in (("before", b), ("after", a)):
            stem = folder / f"{name.replace('/', '.')}.{n}.{side}"
            stem.with_name(stem.name + ".py").write_text(kernel.get("program", ""))
            stem.with_name(stem.name + ".s").write_text(kernel.get("assembly", ""))


def main(argv: Sequence[str] | None = None) -> int:
    """Compares two commits; 1 if something differs, or if nothing of a group could be compared."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("head", nargs="?", help="the commit that is compared; the working tree if it is left out")
    parser.add_argument("--cpu", default="x86-64-v3", help="which CPU code is made for (default: x86-64-v3)")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=GROUPS, help="parts of the corpus")
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    parser.add_argument("--results", action="store_true", help="run the programs, and compare results bit for bit")
    parser.add_argument("--dump", metavar="FOLDER", help="where to write what differs")
    parser.add_argument("--json", metavar="FILE", help="where to write the differences as JSON")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--names", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.measure:
        measure(options)
        return 0
    before, after = (_made_by(commit, options) for commit in (options.base, options.head))
    differences = {name: d for name in after if name in before and (d := compare(before[name], after[name])) is not None}
    coded = [name for name, d in differences.items() if "kernels" in d]
    texts = [_made_by(commit, options, coded) if coded else {} for commit in (options.base, options.head)]
    constants = {name for name in coded if _only_constants(texts[0][name], texts[1][name])}
    for name, difference in differences.items():
        _report(name, difference, name in constants)
        if options.dump and name in coded:
            _dump(Path(options.dump), name, texts[0][name], texts[1][name])
    kernels = sum(len(made.get("kernels", ())) for made in after.values())
    refused = sum("error" in made for made in after.values())
    found = f"{len(differences)} programs differ, {len(constants)} of them in constants only; {refused} are refused by both or one"
    print(f"{len(after)} programs, {kernels} kernels for {options.cpu}: {found}")
    if options.json:
        Path(options.json).write_text(json.dumps(differences, indent=1))
    silent = [group for group in options.groups if says_nothing(before, after, group)]
    for group in silent:
        sides = (*before.items(), *after.items())
        errors = sorted({made["error"] for name, made in sides if name.startswith(f"{group}/") and "error" in made})
        print(f"nothing of `{group}` is compared: {errors[0] if errors else 'it has no such program'}")
    return 1 if differences or silent else 0


def says_nothing(before: dict[str, Any], after: dict[str, Any], group: str) -> bool:
    """Whether no program of a group compiles on both sides. Equal refusals are no result: the tool itself may not fit the trees."""
    names = [name for name in after if name.startswith(f"{group}/")]
    return not any("error" not in after[name] and "error" not in before.get(name, {"error": ""}) for name in names)


if __name__ == "__main__":
    sys.exit(main())
