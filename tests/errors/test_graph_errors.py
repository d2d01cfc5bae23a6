"""Mistakes in graph functions: the message, the place of the caret, facts, the way out, and that nothing of Pliant's own shows.

Each case is the text of a file with the caret's range between « and ». It is written to a file and run, as a user would.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import pliant
from pliant.support.errors import Error

HEAD = """\
from __future__ import annotations

import numpy as np
from pliant import InOut, Out, State, Tensor, bool_, dim, f16, f32, function, i32, i64, kernel, match_cast, ops
n = dim("n")
m = dim("m")
q = dim("q", min=1, max=64)
pages = dim("pages")
table = np.ones((3, 4), np.float32)

@kernel
def update(cache: InOut[f32, pages, 64], x: Tensor[f32, m, 64], scale: f32, total: Out[f32, m]) -> None:
    for i in range(m):
        total[i] = x[i, 0] * scale
    for i in range(pages):
        cache[i, 0] = scale

@function
def small(x: Tensor[f32, q, 8]) -> Tensor[f32, q, 8]:
    return x

"""


class Case(NamedTuple):
    """A file with a mistake: its text, the first line of the message, and parts of facts, notes or help."""

    source: str
    what: str
    parts: tuple[str, ...] = ()


def function(signature: str, *body: str, returns: str = "") -> str:
    """A function with this signature and these lines."""
    return "\n".join([f"@function\ndef f({signature}){' -> ' + returns if returns else ''}:", *(f"    {line}" for line in body)])


X = "x: Tensor[f32, n, 64]"
STATE = "x: Tensor[f32, n, 64], c: State[f32, pages, 64]"

CASES: dict[str, Case] = {
    "text_dtype": Case(
        function('x: Tensor[«"floot32"», n]', "return x"),
        "`floot32` is not a data type",
        ("did you mean `float32`",),
    ),
    "matmul_shapes": Case(
        function(f"{X}, w: Tensor[f32, 32, 128]", "return «x @ w»"),
        "matmul: 64 columns of `x` meet 32 rows of `w`",
        ("fact: `x` is Tensor[f32, n, 64]", "fact: `w` is Tensor[f32, 32, 128]", "help: the last dim of the first"),
    ),
    "matmul_rank": Case(
        function(f"{X}, w: Tensor[f32]", "return x @ «w»"),
        "matmul: `w` has 0 dims, at least 2 are needed",
        ("ops.reshape",),
    ),
    "matmul_vector": Case(
        function(f"{X}, w: Tensor[f32, 32]", "return «x @ w»"),
        "matmul: 64 columns of `x` meet 32 rows of `w`",
        ("fact: `x` is Tensor[f32, n, 64]", "fact: `w` is Tensor[f32, 32]"),
    ),
    "unknown_op": Case(
        function(X, "return «ops.sofmax»(x)"),
        "there is no operator `sofmax`",
        ("did you mean `softmax` or `log_softmax`?",),
    ),
    "unknown_keyword": Case(
        function(X, "return «ops.softmax(x, axes=1)»"),
        "ops.softmax: got an unexpected keyword argument 'axes'",
        ("fact: ops.softmax(x, axis=-1)", "did you mean `axis`?"),
    ),
    "consumed_state": Case(
        function(STATE, "c1, y = update(c, x, 1.0)", "z = ops.sum(«c»)", "return c1, y, z"),
        "state `c` is used after it was consumed",
        ("consumed here", "c1, y = update(c, x, 1.0)", "use the new state"),
    ),
    "consumed_twice": Case(
        function(STATE, "c1, y = update(c, x, 1.0)", "c2, y = update(«c», x, 1.0)", "return c1, c2"),
        "state `c` is used after it was consumed",
        ("consumed here",),
    ),
    "returned_after_consumed": Case(
        function(STATE, "c1, y = update(c, x, 1.0)", "«return y, c, c1»"),
        "state `c` is used after it was consumed",
        ("consumed here",),
    ),
    "dropped_state": Case(
        function(STATE, "c1, y = «update(c, x, 1.0)»", "return y"),
        "the new state `c1` is dropped",
        ("return it",),
    ),
    "no_state": Case(
        function(f"{X}, c: Tensor[f32, pages, 64]", "c1, y = update(«c», x, 1.0)", "return c1"),
        "update: argument `cache` does not fit: it is not state",
        ("parameter `cache` is State[f32, pages, 64]", "State[...]"),
    ),
    "state_in_one_branch": Case(
        function(STATE, "y = x", "if n > 4:", "    d, y = «update(c, x, 1.0)»", "return c, y"),
        "state `c` is consumed in one branch only",
        ("assign the new state to `c`",),
    ),
    "state_in_a_loop": Case(
        function(STATE, "i = 0", "while i < n:", "    d, y = update(«c», x, 1.0)", "    i += 1", "return c"),
        "state `c` is consumed in every round of a loop",
        ("assign the new state to `c`",),
    ),
    "wrong_dtype": Case(
        function(f"{X}, y: Tensor[f16, n, 64]", "return x + «y»"),
        "add of f32 and f16: nothing is cast implicitly",
        ("ops.cast(y, f32)", "`y` is Tensor[f16, n, 64]"),
    ),
    "float_beside_integers": Case(
        function("x: Tensor[i32, n]", "return «x * 0.5»"),
        "ops.mul of i32 and the float 0.5",
        ("cast the tensor",),
    ),
    "floats_only": Case(
        function("x: Tensor[i32, n]", "return ops.exp(«x»)"),
        "exp is for floats, and `x` is i32",
        ("ops.cast(x, f32)",),
    ),
    "undefined_name": Case(
        function(X, "hidden = x + 1.0", "return «hiden»"),
        "`hiden` is not defined",
        ("did you mean `hidden`?",),
    ),
    "recursion": Case(
        function(X, "return «f»(x)"),
        "`f` calls itself",
        ("while",),
    ),
    "wrong_return": Case(
        function(X, "return «ops.sum(x, axis=0)»", returns="Tensor[f32, n, 64]"),
        "the function does not return what its annotation says",
        ("it has 1 dim, 2 are expected", "this is promised", "the annotation says Tensor[f32, n, 64]"),
    ),
    "wrong_return_dim": Case(
        function(X, "return «x»", returns="Tensor[f32, n, 32]"),
        "the function does not return what its annotation says",
        ("dim 1 is 64, 32 is expected",),
    ),
    "wrong_return_count": Case(
        function(X, "return x", returns="«tuple[Tensor[f32, n, 64], Tensor[f32, n, 64]]»"),
        "the return annotation has 2 items, the function returns 1",
        ("it returns tuple[Tensor[f32, n, 64]]",),
    ),
    "missing_annotation": Case(
        function(f"{X}, «w»", "return x"),
        "parameter `w` has no annotation",
        ("w: Tensor[f32, n, 64]",),
    ),
    "bad_annotation": Case(
        function("x: «float»", "return x"),
        "`float` does not say how wide it is",
        ("write f32 or f64",),
    ),
    "text_as_extent": Case(
        function('x: Tensor[f32, «"n"»]', "return x"),
        "an extent is a dim or a whole number",
    ),
    "kernel_annotation": Case(
        function("x: «Out[f32, n]»", "return x"),
        "here: Out[f32, n] belongs to kernels",
        ("State[...]",),
    ),
    "branches_disagree": Case(
        function(X, "if n > 4:", "    y = x", "else:", "    y = ops.sum(x, axis=1)", "return «y»"),
        "the branches disagree about `y`",
        ("in the first branch it is Tensor[f32, n, 64]", "in the second branch it is Tensor[f32, n]", "these branches"),
    ),
    "one_branch": Case(
        function(X, "if n > 4:", "    y = x + 1.0", "return «y»"),
        "`y` is assigned in the first branch only",
        ("assign `y` in both branches",),
    ),
    "condition_is_a_tensor": Case(
        function(X, "y = x", "«if x > 0.0»:", "    y = x + 1.0", "return y"),
        "a condition is one bool, and `cond` is Tensor[bool, n, 64]",
        ("reduce the tensor",),
    ),
    "inside_the_loop_only": Case(
        function(X, "i = 0", "while i < n:", "    y = x * 2.0", "    i += 1", "return «y»"),
        "`y` is assigned only inside the loop",
        ("may run zero times",),
    ),
    "loop_changes_shape": Case(
        function(X, "i = 0", "«while i < n»:", "    x = ops.concat([x, x])", "    i += 1", "return x"),
        "`x` changes from round to round of the loop",
        ("it starts as Tensor[f32, n, 64]", "after a round it is Tensor[f32, n * 2, 64]"),
    ),
    "endless_loop": Case(
        function(X, "«while True»:", "    x = x + 1.0", "return x"),
        "this loop does not end",
        ("break",),
    ),
    "too_few_arguments": Case(
        function(STATE, "c1, y = «update(c, x)»", "return c1, y"),
        "update takes 3 arguments, 2 given",
        ("update(cache: State[f32, pages, 64], x: Tensor[f32, m, 64], scale: f32)",),
    ),
    "unknown_parameter": Case(
        function(STATE, "c1, y = update(c, x, scle=«1.0»)", "return c1, y"),
        "`update` has no parameter `scle`",
        ("did you mean `scale`?",),
    ),
    "kernel_shape": Case(
        function("x: Tensor[f32, n, 32], c: State[f32, pages, 64]", "c1, y = update(c, «x», 1.0)", "return c1, y"),
        "update: dim 1 of argument `x` is 32, 64 is expected",
        ("`x` is Tensor[f32, n, 32]",),
    ),
    "kernel_rank": Case(
        function("x: Tensor[f32, n], c: State[f32, pages, 64]", "c1, y = update(c, «x», 1.0)", "return c1, y"),
        "update: argument `x` does not fit: it has 1 dim, 2 are expected",
        ("parameter `x` is Tensor[f32, m, 64]",),
    ),
    "contract": Case(
        function("x: Tensor[f32, 65, 8]", "return «small(x)»"),
        "small: dim 0 of argument `x` is 65, and the contract says q in 1..64",
    ),
    "dim_before_definition": Case(
        function(X, "return «ops.full([n, m], 0.0)»"),
        "dim `m` is used before it is defined",
        ("stands alone", "match_cast"),
    ),
    "dim_in_expression_only": Case(
        function("x: «Tensor[f32, n * 2]»", "return x"),
        "dim `n` is used before it is defined",
        ("stands alone",),
    ),
    "return_of_unknown_dim": Case(
        function(X, "return x", returns="«Tensor[f32, m, 64]»"),
        "dim `m` is used before it is defined",
    ),
    "impossible_match": Case(
        function(X, "return match_cast(«x», Tensor[f32, m, 32])"),
        "match_cast: dim 1 of `x` is 64, 32 is expected",
    ),
    "match_rank": Case(
        function(X, "return match_cast(«x», Tensor[f32, m])"),
        "match_cast: `x` cannot be Tensor[f32, m]: it has 2 dims, 1 is expected",
    ),
    "reshape": Case(
        function("x: Tensor[f32, 6]", "return «ops.reshape(x, [4, 2])»"),
        "reshape: 6 elements of shape (6,) cannot have the shape (4, 2) of 8",
    ),
    "axis": Case(
        function(X, "return «ops.softmax(x, axis=2)»"),
        "softmax: axis 2 of a tensor with 2 dims",
        ("axes are -2..1",),
    ),
    "broadcast": Case(
        function(f"{X}, y: Tensor[f32, 32]", "return x + «y»"),
        "add: dims 64 and 32 (at -1) cannot be broadcast",
        ("dims must be equal, or one of them 1",),
    ),
    "slice_bounds": Case(
        function("x: Tensor[f32, 4]", "return «x[2:9]»"),
        "slice: 2:9 is not within the 4 elements of axis 0 of `x`",
    ),
    "integer_index_outside": Case(
        function(X, "return «x[:, 64]»"),
        "slice: 64:65 is not within the 64 elements of axis 1 of `x`",
    ),
    "too_many_indices": Case(
        function(X, "return «x[0, 0, 0]»"),
        "3 indices for `x`, which has 2 dims",
    ),
    "two_ellipses": Case(
        function(X, "return «x[..., ...]»"),
        "a subscript has `...` at most once",
    ),
    "mask_index": Case(
        function(f"{X}, c: Tensor[bool_, n]", "return «x[c]»"),
        "`x` is indexed by `c`, which is Tensor[bool, n]",
        ("ops.masked_select",),
    ),
    "index_by_text": Case(
        function(X, "return «x['a']»"),
        "a tensor cannot be indexed by an object of type `str`",
    ),
    "indices_apart": Case(
        function("x: Tensor[f32, 4, n, 4], i: Tensor[i64, 3]", "return «x[0, :, i]»"),
        "an integer and a tensor index with other axes between them",
        ("index in two steps",),
    ),
    "method": Case(
        function(X, "return «x.reshape»([64, n])"),
        "a tensor has no `reshape`",
        ("ops.reshape(x, ...)",),
    ),
    "python_function": Case(
        "def helper(x):\n    return x\n\n" + function(X, "return «helper»(x)"),
        "`helper` cannot be called in a graph function",
        ("ops.call_host",),
    ),
    "numpy_function": Case(
        function(X, "return «np.exp»(x)"),
        "`np.exp` cannot be called in a graph function",
        ("use ops.exp",),
    ),
    "for_over_a_dim": Case(
        function(X, "for i in range(«n»):", "    x = x + 1.0", "return x"),
        "`n` is known only at run time",
        ("while",),
    ),
    "for_over_rows": Case(
        function(X, "for row in «x»:", "    x = x + row", "return x"),
        "`x` has n rows, which only a run tells",
        ("while",),
    ),
    "for_over_a_number": Case(
        function(X, "for i in «3»:", "    x = x + 1.0", "return x"),
        "`3` has no items to go through",
        ("range",),
    ),
    "for_too_long": Case(
        function(X, "for i in «range(100000)»:", "    x = x + 1.0", "return x"),
        "100000 rounds are too many to unroll",
        ("while",),
    ),
    "for_with_break": Case(
        function(X, "for i in range(3):", "    «break»", "return x"),
        "`break` is not part of graph functions",
        ("unrolled",),
    ),
    "for_else": Case(
        function(X, "for i in range(3):", "    x = x + 1.0", "else:", "    «x = x + 2.0»", "return x"),
        "`for` has no `else` here",
    ),
    "for_names": Case(
        function(X, "for «a, b» in range(3):", "    x = x + a", "return x"),
        "2 names for one value",
    ),
    "append": Case(
        function(X, "ys = []", "«ys.append(x)»", "return ops.concat(ys)"),
        "lists are not changed in place",
        ("ys = ys + [x]",),
    ),
    "choice_at_run_time": Case(
        function(f"{X}, c: bool_", "return x if «c» else 2.0 * x"),
        "this condition is known only at run time",
        ("ops.where",),
    ),
    "early_return": Case(
        function(X, "if n > 4:", "    «return x»", "return x"),
        "`return` stands at the end of a function only",
    ),
    "return_in_branches": Case(
        function(X, "if n > 4:", "    «return x»", "else:", "    return 2.0 * x"),
        "`return` stands at the end of a function only",
        ("assign the result in both branches",),
    ),
    "return_in_loop": Case(
        function(X, "while n > 4:", "    if n > 8:", "        «return x»"),
        "`return` stands at the end of a function only",
    ),
    "return_of_inner_function": Case(
        "@function\n«def f(x: Tensor[f32, n])»:\n    def g(y):\n        return y\n",
        "`f` returns nothing",
    ),
    "no_return": Case(
        "@function\n«def f(x: Tensor[f32, n])»:\n    y = x\n",
        "`f` returns nothing",
    ),
    "unused_expression": Case(
        function(X, "«ops.exp(x)»", "return x"),
        "the result of this expression is not used",
    ),
    "assignment_to_elements": Case(
        function(X, "«x[0]» = 1.0", "return x"),
        "only names can be assigned",
    ),
    "unpacking": Case(
        function(STATE, "«a, b, d» = update(c, x, 1.0)", "return a"),
        "3 names for 2 values",
    ),
    "annotated_assignment": Case(
        function(X, "y: «Tensor[f32, 64, n]» = x", "return y"),
        "`y` is not what its annotation says",
        ("match_cast",),
    ),
    "default": Case(
        function("x: Tensor[f32, n], eps: f32 = «1e-5»", "return x"),
        "parameters have no defaults",
    ),
    "rotary_width": Case(
        function("x: Tensor[f32, n, 2, 5], p: Tensor[i64, n]", "return «ops.rotary_embedding(x, p)»"),
        "rotary_embedding: the last dim of `x` must be an even number",
    ),
    "dim_escapes": Case(
        function(
            X,
            "y = x",
            "«if n > 4»:",
            "    y = match_cast(x, Tensor[f32, m, 64])",
            "else:",
            "    y = match_cast(x, Tensor[f32, m, 64])",
            "return y",
        ),
        "dim `m` is not known outside: a result of the branches has it in its shape",
    ),
}


def run(tmp_path: Path, source: str) -> tuple[Error, str, int, int, int]:
    """The error of running the file, its text, and the line and columns that are marked."""
    text = HEAD + source + "\n"
    start = text.index("«")
    line = text.count("\n", 0, start) + 1
    column = start - (text.rfind("\n", 0, start) + 1)
    end = text.index("»") - 1 - (text.rfind("\n", 0, start) + 1)
    file = tmp_path / "model.py"
    file.write_text(text.replace("«", "").replace("»", ""), encoding="utf-8")
    with pytest.raises(Error) as caught:
        runpy.run_path(str(file))
    return caught.value, str(caught.value), line, column, end


@pytest.mark.parametrize("name", CASES)
def test_mistake(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    error, shown, line, column, end = run(tmp_path, case.source)
    assert error.what == case.what
    assert error.where is not None
    assert (Path(error.where.file).name, error.where.line) == ("model.py", line)
    assert (error.where.column, error.where.end_column) == (column, end)
    for part in case.parts:
        assert part in shown
    assert str(Path(pliant.__file__).parent) not in shown
    assert "this is a defect of Pliant" not in shown


def test_operators_outside_of_functions() -> None:
    with pytest.raises(Error, match=r"ops\.exp is called outside of a graph function") as caught:
        pliant.ops.exp(np.ones(3))
    assert caught.value.where is not None and caught.value.where.file == __file__
    assert "@function" in caught.value.help


def test_text_that_is_not_python() -> None:
    from pliant.graph.parse import parse_module

    with pytest.raises(Error, match="this is not Python") as caught:
        parse_module("def f(:\n", {}, "broken.py")
    assert caught.value.where is not None and (caught.value.where.file, caught.value.where.line) == ("broken.py", 1)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import os\nos.remove('x')\n", "this is not part of a graph module"),
        ("n = dim(name())\n", "a dim is declared with literals"),
        ("n = dim('n', min=9, max=4)\n", "dim `n` has no value"),
        (
            "@function\ndef f(x: Tensor[f32, 4]) -> Tensor[f32, 4]:\n    return open(x)\n",
            "`open` is a Python builtin, and not part of this language",
        ),
    ],
)
def test_text_executes_nothing(text: str, what: str) -> None:
    from pliant.graph.parse import parse_module

    with pytest.raises(Error, match=what) as caught:
        parse_module(text, {}, "module.py")
    assert caught.value.where is not None and caught.value.where.file == "module.py"
