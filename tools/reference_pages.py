"""Writes the pages that are made from the source: docs/command_line.md from the commands' options, docs/python_api.md from docstrings.

    python tools/reference_pages.py             # after an option or a public function was added, renamed or documented otherwise
    python tools/reference_pages.py --check     # writes nothing; the exit code is 1 if a file is out of date

`tests/docs/test_reference_pages.py` checks that both are current.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pliant
from generated_files import update
from pliant.cli import COMMANDS, Parser
from pliant.dtype import DType
from pliant.llm.reply import Reply, Stream
from pliant.llm.session import Session
from pliant.report.profile import Profile
from pliant.runtime.contract import Contract, Workspace

DOCS = Path(__file__).parents[1] / "docs"
COMMAND_LINE, PYTHON_API = DOCS / "command_line.md", DOCS / "python_api.md"
GENERATED = "<!-- Generated: run `python tools/reference_pages.py`. -->\n"

COMMAND_LINE_HEAD = """# Command line

`pliant COMMAND --help` shows the same on a terminal. Results go to stdout, progress and remarks to stderr; `--json` prints a result as
JSON. [Exit codes](exit_codes.md) tell scripts what happened. [Environment variables](environment_variables.md) hold for all commands.
"""

PYTHON_API_HEAD = """# Python API

The names of `import pliant`, with their docstrings. They are imported when they are first used, so `import pliant` itself is fast.
Operators of graph programs, `pliant.ops`, have [a page of their own](operators.md), and so have [`pliant.nn`](nn.md) and the
[interface of onnxruntime](onnx.md#in-place-of-onnxruntime).
"""

# Each public name that is documented in full stands in one section; what these return is listed where it has no public name.
SECTIONS: dict[str, str] = {
    "Models and programs": "from_onnx from_torch parse function kernel Function Kernel Program stages lower_until quantize "
    "quantization_errors",
    "Compiled programs": "compile load export Executable Contract Workspace Profile explain kind KernelKind set_threads threads",
    "Language models": "LLM Reply Stream Session Embedder",
    "Tuning": "autotune TuningResult",
    "Types and dims": "Tensor dim strides match_cast DType",
    "Schedules and extensions": "Schedule auto_tensorize rule unregister_rule instruction DeclaredInstruction operator Operator template "
    "Template register_library unregister_library Refusal",
    "Errors": "Error ShapeError UnsupportedError ModelFileError ScheduleError CancelledError InternalError",
}
RETURNED: dict[str, Any] = {c.__name__: c for c in (Contract, Workspace, Profile, Reply, Stream, Session)}
MARKERS = ("Tensor", "Out", "InOut", "State")  # one docstring for the four
WORD_MODULES = ("pliant.loop.script", "pliant.sym.script")
NUMBERS = ("inf", "nan")
CONSTRUCTED = ("LLM", "Embedder", "Schedule", "Error", "Refusal")  # the classes that users call; others come from functions
ATTRIBUTES = {"Executable": "`contract` ([Contract](#contract)), `workspace` ([Workspace](#workspace))", "LLM": "`name`, `tokenizer`"}
LISTED = ("Schedule", "Error")  # a line for each method: primitives have their before and after in their docstrings


def command_parser(name: str) -> Parser:
    """Returns the parser of a command, with its options."""
    parser = Parser(f"pliant {name}", COMMANDS[name])
    import_module(f"pliant.cli.{name}").arguments(parser)
    return parser


def command_line() -> str:
    """Returns the page of the commands: a section for each, with a table of its arguments and options."""
    return "\n".join([COMMAND_LINE_HEAD + "\n" + GENERATED, *(command(name) for name in COMMANDS)])


def command(name: str) -> str:
    """Returns the section of a command."""
    parser = command_parser(name)
    actions = [a for a in parser._actions if not isinstance(a, argparse._HelpAction)]
    rows = [f"| {code(words(a))} | {cell((a.help or '') % {**vars(a), 'prog': parser.prog})} |" for a in actions]
    usage = " ".join([parser.prog, *(place(a) for a in actions if not a.option_strings), "[options]"])
    lines = [f"## {name}", "", capital(COMMANDS[name]) + ".", "", "```", usage, "```", "", "| option | meaning |", "|---|---|", *rows, ""]
    if parser.epilog:
        lines += ["```", parser.epilog.rstrip(), "```", ""]
    return "\n".join(lines)


def place(action: argparse.Action) -> str:
    """Returns how an argument without a name is shown in the line of usage."""
    name = str(action.metavar or action.dest)
    return f"[{name}]" if action.nargs == "?" else name


def words(action: argparse.Action) -> str:
    """Returns the names of an option and its value; of an argument its name."""
    value = "" if action.nargs == 0 else str(action.metavar or (" | ".join(action.choices) if action.choices else action.dest.upper()))
    if not action.option_strings:
        return place(action).strip("[]")
    more = " …" if action.nargs == "+" else ""
    return ", ".join(action.option_strings) + (f" {value}{more}" if value else "")


def code(text: str) -> str:
    """Returns a text as code in a cell of a table; GitHub and mkdocs read a bar in backticks differently, an entity alike."""
    return f"<code>{text.replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def cell(text: str) -> str:
    """Returns a text as one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def capital(text: str) -> str:
    """Returns a text with a capital first letter, unless it begins with a formula."""
    return text[:1].upper() + text[1:] if text[:2].isalpha() or text.startswith("a ") else text


def python_api() -> str:
    """Returns the page of the API: sections with full docstrings, then tables of the words of kernels and of data types."""
    lines = [PYTHON_API_HEAD + "\n" + GENERATED]
    for title, names in SECTIONS.items():
        lines += [f"## {title}", "", *(entry(name, public(name)) for name in names.split())]
    table = [word_row(name) for name in kernel_words()]
    lines += ["## Words of kernels", "", "The words of [the loop language](loop_language.md), and functions of numbers:", ""]
    lines += ["| word | |", "|---|---|", *table, "", f"Numbers: {', '.join(f'`{name}`' for name in NUMBERS)}.", ""]
    types = [name for name in pliant.__all__ if isinstance(getattr(pliant, name), DType)]
    lines += ["## Data types", "", ", ".join(f"`{t}`" for t in types) + ".", "", "## Modules", "", *modules(), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def word_row(name: str) -> str:
    """Returns the row of a word of kernels."""
    value = getattr(pliant, name)
    return f"| `{name}{short_signature(value)}` | {cell(first_sentence(value))} |"


def public(name: str) -> Any:
    """Returns the object of a name of a section."""
    return RETURNED[name] if name in RETURNED else getattr(pliant, name)


def kernel_words() -> list[str]:
    """Returns the public names that have a meaning inside of kernels."""
    return [name for name in pliant.__all__ if getattr(getattr(pliant, name), "__module__", "") in WORD_MODULES]


def module_names() -> list[str]:
    """Returns the public modules."""
    return [name for name in pliant.__all__ if isinstance(getattr(pliant, name), ModuleType)]


def modules() -> list[str]:
    """Returns a line for each public module."""
    pages = {"nn": "nn.md", "ops": "operators.md", "tune": "tuning.md", "video": "video.md"}
    return [f"- [`pliant.{name}`]({pages[name]})" for name in module_names()]


def entry(name: str, value: Any) -> str:
    """Returns the part of the page about a class or function: its signature, its docstring, and what it has."""
    head, facts = f"### {name}\n\n", ""
    if name == "Tensor":
        return head + f"{', '.join(f'`{m}`' for m in MARKERS)}\n\n{prose(value)}\n"
    if name in CONSTRUCTED or not isinstance(value, type):
        head += f"```\n{signature(name, value)}\n```\n\n"
    if name in ATTRIBUTES:
        facts += f"Attributes: {ATTRIBUTES[name]}.\n\n"
    if is_dataclass(value) and name in RETURNED:
        facts += f"Fields: {', '.join(f'`{f.name}`' for f in fields(value))}.\n\n"
    inherits = isinstance(value, type) and issubclass(value, Exception) and name != "Error"
    made = f"{prose(value.__init__)}\n" if name in CONSTRUCTED and inspect.getdoc(value.__init__) != inspect.getdoc(object.__init__) else ""
    return head + prose(value) + "\n" + made + facts + ("" if inherits or not isinstance(value, type) else members(name, value))


def members(name: str, cls: type) -> str:
    """Returns the public methods and properties of a class, with those of its bases in this package."""
    found = inspect.getmembers(cls, lambda m: inspect.isfunction(m) or isinstance(m, property))
    own = [(n, m) for n, m in found if not n.startswith("_") and inspect.getdoc(m) and member_module(m).startswith("pliant")]
    shown = [(member_signature(cls, n, m), m) for n, m in own]
    if name in LISTED:
        lines = [f"- `{text}`: {escaped(first_sentence(m))}\n" for text, m in shown]
        return "".join(lines) + "\n" if lines else ""
    return "".join(f"**`{name}.{text}`**\n\n{prose(m)}\n" for text, m in shown)


def member_signature(cls: type, name: str, member: Any) -> str:
    """Returns how a method is called, or the name of a property."""
    if isinstance(member, property):
        return name
    return name + short_signature(member, bound=not isinstance(inspect.getattr_static(cls, name), staticmethod))


def member_module(member: Any) -> str:
    """Returns the name of the module that defines a method or property."""
    return str(getattr(member.fget if isinstance(member, property) else member, "__module__", ""))


def signature(name: str, value: Any) -> str:
    """Returns the signature of a function, or of the constructor of a class, with types; long ones take a line for each parameter."""
    found = inspect.signature(value)
    parameters = [typed(p) for p in separated(list(found.parameters.values()))]
    result = "" if isinstance(value, type) or found.return_annotation is found.empty else f" -> {annotation(found.return_annotation)}"
    line = f"{name}({', '.join(parameters)}){result}"
    return line if len(line) <= 110 else f"{name}(\n" + "".join(f"    {p},\n" for p in parameters) + f"){result}"


def separated(parameters: list[inspect.Parameter]) -> list[inspect.Parameter | str]:
    """Returns the parameters with `/` and `*` where they stand in the source."""
    out: list[inspect.Parameter | str] = []
    for k, p in enumerate(parameters):
        before = parameters[k - 1].kind if k else None
        if before is p.POSITIONAL_ONLY and p.kind is not p.POSITIONAL_ONLY:
            out.append("/")
        if p.kind is p.KEYWORD_ONLY and before not in (p.KEYWORD_ONLY, p.VAR_POSITIONAL):
            out.append("*")
        out.append(p)
    return [*out, "/"] if parameters and parameters[-1].kind is inspect.Parameter.POSITIONAL_ONLY else out


def typed(parameter: inspect.Parameter | str) -> str:
    """Returns a parameter with its type and default."""
    if isinstance(parameter, str):
        return parameter
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    shown = stars + parameter.name
    if parameter.annotation is not parameter.empty:
        shown += f": {annotation(parameter.annotation)}"
    return shown if parameter.default is parameter.empty else f"{shown} = {parameter.default!r}"


def annotation(value: Any) -> str:
    """Returns an annotation as it stands in the source."""
    return value if isinstance(value, str) else inspect.formatannotation(value)


def short_signature(function: Any, bound: bool = False) -> str:
    """Returns the parameters of a function without types, those of a bound method without `self`."""
    shown = []
    for p in separated(list(inspect.signature(function).parameters.values())[1 if bound else 0 :]):
        plain = p if isinstance(p, str) else typed(p.replace(annotation=p.empty)).replace(" = ", "=")
        shown.append(plain)
    return f"({', '.join(shown)})"


def first_sentence(value: Any) -> str:
    """Returns the first paragraph of a docstring, without what all words of kernels have in common."""
    first = (inspect.getdoc(value) or "").partition("\n\n")[0]
    return capital(" ".join(first.split()).removeprefix("In a kernel: ").replace(" Calling it from Python raises an error.", ""))


def prose(value: Any) -> str:
    """Returns a docstring as Markdown: lines that are indented by four are blocks of code."""
    out: list[str] = []
    for part in re.split(r"\n\n+", inspect.getdoc(value) or ""):
        if all(line.startswith("    ") for line in part.splitlines()):
            out.append("```\n" + "\n".join(line[4:] for line in part.splitlines()) + "\n```")
        else:
            out.append(escaped(part))
    return "\n\n".join(out).replace("\n```\n\n```\n", "\n\n") + "\n"  # blocks with an empty line inside are one


def escaped(text: str) -> str:
    """Returns a text in which Markdown sees no HTML and no emphasis outside of backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else p.replace("<", "&lt;").replace("*", "\\*") for p in parts)


def generated() -> dict[Path, str]:
    """Returns the files and the text that they should have."""
    return {COMMAND_LINE: command_line(), PYTHON_API: python_api()}


if __name__ == "__main__":
    sys.exit(update(generated(), check="--check" in sys.argv[1:]))
