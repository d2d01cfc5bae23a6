"""What `tools/mutants.py` changes: legality, guards and rewriting; not what only chooses among legal programs."""

from __future__ import annotations

import ast
from pathlib import Path

import mutant_lab as mutants
import mutate
from reach import Reach
from schedule_player import Player

ROOT = Path(__file__).parent.parent.parent
TEXT = """
MOST = 8
SIZES: dict[str, int] = {"a": 3}

def rule(decide, n, self):
    if n < 4 and n % 2 == 0:
        raise ValueError("odd")
    rows = decide("rows", (1, 2, 4), 2, why="5")
    lanes = decide.of("b")("lanes", (8, 16), 16)
    part = self.decide("part", [32, 64], 32)
    if not decide("inline", (False, True), True):
        return 0
    if rows > MOST or rows > 9:
        raise InternalError("cannot be")
    return rows + lanes + part + max(n, 7)

def __repr__(self):
    return 5
"""


def found(group: str) -> list[str]:
    finder = mutate.Finder(group, "x.py", TEXT)
    finder.visit(ast.parse(TEXT))
    return [m.before for m in finder.found]


def test_decisions_and_named_numbers_of_rules_stay() -> None:
    assert sorted(set(found("rules"))) == ["0", "2", "4", "7", "9", "n < 4", "n < 4 and n % 2 == 0", "rows > 9"]


def test_checks_of_the_compiler_itself_and_choices_stay() -> None:
    finder = mutate.Finder("passes", "x.py", TEXT)
    finder.visit(ast.parse(TEXT))
    assert [m.before for m in finder.found if m.kind in ("check", "guard")] == ["n < 4 and n % 2 == 0"]
    assert not any("MOST" in m.before for m in finder.found if m.kind == "bound")


MARKED = """
def rule(users, n, text):
    if worth(n > 4 and users is not None and users[0] < 9):
        return 3 + 4
    what = f"{n} of them" if n > 5 else "it"
    return users[-2], what

@heuristic
def cost(n, users):
    return n * 6 if n > 7 and users else users[1]
"""


def test_what_only_chooses_is_changed_where_it_may_fail() -> None:
    """A mark leaves out numbers and comparisons; not types, None and places, without which a condition cannot be computed."""
    finder = mutate.Finder("passes", "x.py", MARKED)
    finder.visit(ast.parse(MARKED))
    assert not [m for m in finder.found if m.kind in ("bound", "guard", "check")]
    dropped = {m.after for m in finder.found if m.kind == "conjunct"}
    assert dropped == {"((n > 4) and (users[0] < 9))", "((n > 7))"}
    assert sorted({m.before for m in finder.found if m.kind == "constant"}) == ["0", "1", "2", "3", "4"]
    assert [m.after for m in finder.found if m.kind == "constant" and m.before == "0"] == ["1"]  # not -1, which is the same of one element


def test_changes_elsewhere_do_not_change_what_is_drawn() -> None:
    """The order of a seed is by what a mutant is, so that what was measured holds for the next commit too."""

    def drawn(text: str) -> list[str]:
        finder = mutate.Finder("passes", "x.py", text)
        finder.visit(ast.parse(text))
        return [f"{m.kind} {m.before} {m.after}" for m in sorted(finder.found, key=lambda m: m.lot(1)) if m.function == "rule"]

    assert drawn(TEXT) == drawn("def before(n):\n    return n < 3 and n > 1\n" + TEXT)


def test_what_has_to_run_for_a_change_to_show() -> None:
    """Of a check, the line that raises; of another change, its own line."""
    finder = mutate.Finder("passes", "x.py", TEXT)
    finder.visit(ast.parse(TEXT))
    lines = TEXT.splitlines()
    (check,) = [m for m in finder.found if m.kind == "check"]
    assert [lines[n - 1].strip() for n in check.seen_at] == ['raise ValueError("odd")']
    assert all(str(m.before) in lines[m.seen_at[0] - 1] for m in finder.found if m.kind == "constant")


def test_the_cheapest_tests_of_every_function_come_first() -> None:
    map_of_lines = Reach(["a.py::f[0]", "a.py::f[1]", "b.py::g"], [3.0, 1.0, 2.0], {"x.py": {7: 0b111, 9: 0b100}})
    assert map_of_lines.order([0, 1, 2], 100) == ["a.py::f[1]", "b.py::g", "a.py::f[0]"]
    assert map_of_lines.order([0, 1, 2], 1.5) == ["a.py::f[1]", "b.py::g"]
    assert map_of_lines.functions([0, 2]) == ["b.py::g", "a.py::f"]
    assert map_of_lines.mask("x.py", [8, 9]) == 0b100


def test_numbers_of_other_files_change() -> None:
    assert {"8", "3"} <= set(found("legality"))


def test_moves_to_make_more_often_exist() -> None:
    """A name that the player does not have would make every test fail at once, and every mutant seem found."""
    names = {name for moves in mutants.FOCUS.values() for name in moves.split()}
    assert {name for name in names if not hasattr(Player, name)} == set()


def test_every_file_of_primitives_has_moves() -> None:
    files = {p.stem for p in (ROOT / "src/pliant/schedule/primitives").glob("*.py") if p.stem != "__init__"}
    assert files - mutants.FOCUS.keys() == set()


def test_tests_of_the_tier_exist() -> None:
    assert {t for t in mutants.TIER if not (ROOT / mutants.PROPERTY / t.split("::")[0]).exists()} == set()
