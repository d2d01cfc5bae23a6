"""What `tools/mutants.py` changes: legality, guards and rewriting; not what only chooses among legal programs."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tools"))

import mutants
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
    return rows + lanes + part + max(n, 7)
"""


def found(group: str) -> list[str]:
    finder = mutants.Finder(group, "x.py", TEXT)
    finder.visit(ast.parse(TEXT))
    return [m.before for m in finder.found]


def test_decisions_and_named_numbers_of_rules_stay() -> None:
    assert sorted(set(found("rules"))) == ["0", "2", "4", "7", "n < 4", "n < 4 and n % 2 == 0"]


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
