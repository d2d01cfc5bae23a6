"""Packages and interfaces: bytes and back, broken metadata, texts."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from runtime_programs import add_package, count_package, positives_package

from pliant.runtime.blob import Blob
from pliant.runtime.interface import Input, Interface, Output, Site, Symbol
from pliant.runtime.package import Package
from pliant.support.errors import ModelFileError


@pytest.mark.parametrize("make", [add_package, count_package, positives_package])
def test_round_trip(make: Any) -> None:
    package = make()
    again = Package.from_bytes(package.to_bytes())
    assert again == package
    assert again.interface.sites == package.interface.sites and again.blob.code == package.blob.code


def test_every_cut_of_the_head_and_metadata_is_refused() -> None:
    data = add_package().to_bytes()
    for end in [*range(200), *range(200, len(data), 37)]:
        with pytest.raises(ModelFileError):
            Package.from_bytes(data[:end])
    with pytest.raises(ModelFileError):
        Package.from_bytes(data + b"\0")


def test_a_missing_entry_is_refused() -> None:
    package = add_package()
    exports = {n: o for n, o in package.blob.exports.items() if n != "size"}
    with pytest.raises(ModelFileError, match="exports no `size`"):
        Package.from_bytes(Package(Blob(package.blob.code, exports), package.interface).to_bytes())


def mutate(value: Any, chance: random.Random) -> Any:
    """The value with one random change somewhere inside."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: mutate(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        return [*value[:at], mutate(value[at], chance), *value[at + 1 :]]
    return chance.choice([None, True, -1, 2**70, 1.5, "", "x", [], {}, [[]], {"name": "x"}])


def test_mutated_metadata_is_refused_or_sound() -> None:
    chance = random.Random(5)
    refused = 0
    for make in (add_package, count_package, positives_package):
        interface = make().interface
        for _ in range(700):
            text = json.dumps(mutate(json.loads(interface.to_json()), chance))
            try:
                found = Interface.from_json(text)
            except ModelFileError:
                refused += 1
            else:
                assert Interface.from_json(found.to_json()) == found
    assert refused > 1000


def test_files_from_before_a_field_was_added_are_read() -> None:
    interface = add_package().interface
    fields = json.loads(interface.to_json())
    without = {name: value for name, value in fields.items() if name != "relations"}
    assert Interface.from_json(json.dumps(without)) == interface
    with pytest.raises(ModelFileError, match="fields are not those of Interface"):
        Interface.from_json(json.dumps({name: value for name, value in fields.items() if name != "sites"}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_what_is_no_record_at_all(text: str) -> None:
    with pytest.raises(ModelFileError):
        Interface.from_json(text)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"inputs": (Input("x", "vector", "f32"),)}, "unknown kind `vector`"),
        ({"inputs": (Input("x", "tensor", "f33"),)}, "data type `f33`"),
        ({"inputs": (Input("x", "scalar", "f32", ("n",)),)}, "a scalar has no shape"),
        ({"inputs": (Input("x", "tensor", "f32"),) * 2}, "one name"),
        ({"outputs": (Output("y", "f32", ("n",), alias=0),)}, "no update of a consumed argument"),
        ({"outputs": (Output("y", "f32", ("n",), counted_by=(3,)),)}, "a run-time count that is not there"),
        ({"outputs": (Output("y", "f32", ("n",), counted_by=(None, None)),)}, "one count for each dim"),
        ({"sites": (Site("hint", "x"),)}, "unknown kind `hint`"),
        ({"symbols": (Symbol("n", multiple_of=0),)}, "at least 1"),
    ],
)
def test_what_types_do_not_say(change: dict[str, Any], reason: str) -> None:
    record = {"inputs": (Input("x", "tensor", "f32", ("n",)),), "outputs": (Output("y", "f32", ("n",)),), **change}
    with pytest.raises(ModelFileError, match=reason):
        Interface.from_json(Interface("f", **record).to_json())


def test_texts() -> None:
    assert str(Input("x", "tensor", "f32", ("n", "4"))) == "x: Tensor[f32, n, 4]"
    assert str(Input("k", "tensor", "f16", ("p",), consumed=True)) == "k: State[f16, p]"
    assert str(Input("s", "scalar", "f64")) == "s: f64"
    assert str(Symbol("n", 1, 2048, 8)) == "n in 1..2048 step 8"
    assert str(Symbol("n")) == "n in 0.."
    symbol = Symbol("n", 8, 64, 8)
    assert [n for n in range(100) if symbol.admits(n)] == [8, 16, 24, 32, 40, 48, 56, 64]
