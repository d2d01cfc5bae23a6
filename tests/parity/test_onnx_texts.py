"""Models with tensors of texts: operators on them run on the host, what lies between them is compiled; against onnxruntime and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
import pliant.onnx_backend as backend
import pliant.onnxruntime as drop_in
from pliant.support.errors import Error, ModelFileError, UnsupportedError

onnx = pytest.importorskip("onnx", reason="models are made with the package onnx")
helper = onnx.helper

STRING, FLOAT, INT64 = 8, 1, 7


def texts(*words: str) -> Any:
    return np.array(words, object)


def info(name: str, kind: int, *dims: Any) -> Any:
    return helper.make_tensor_value_info(name, kind, list(dims))


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any] = ()) -> Any:  # type: ignore[assignment]
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 4)], ir_version=9)


def by_onnxruntime(proto: Any, feeds: dict[str, Any]) -> list[Any]:
    ort = pytest.importorskip("onnxruntime", reason="it is what results are compared with")
    found: list[Any] = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    return found


def classifier() -> Any:
    """Words in lower case without stop words, how often each of three is there, a product of numbers, and the label of the largest."""
    weights = np.array([[1, 0, 0.5], [0, 1, 0], [2, 0, 0]], np.float32)
    nodes = [
        helper.make_node("StringNormalizer", ["words"], ["clean"], case_change_action="LOWER", locale="C", stopwords=["the", "a"]),
        helper.make_node("TfIdfVectorizer", ["clean"], ["counts"], mode="TF", min_gram_length=1, max_gram_length=2, max_skip_count=1,
                         ngram_counts=[0, 2], ngram_indexes=[0, 1, 2], pool_strings=["cat", "dog", "red", "cat"]),
        helper.make_node("MatMul", ["counts", "w"], ["score"]),
        helper.make_node("ArgMax", ["score"], ["best"], axis=-1, keepdims=1),
        helper.make_node("LabelEncoder", ["best"], ["label"], domain="ai.onnx.ml", keys_int64s=[0, 1], values_strings=["cats", "dogs"],
                         default_string="others"),
    ]  # fmt: skip
    outputs = [info("label", STRING, None), info("score", FLOAT, None), info("clean", STRING, None)]
    return model(nodes, [info("words", STRING, "n")], outputs, [onnx.numpy_helper.from_array(weights, "w")])


SENTENCES = [
    (texts("The", "red", "big", "CAT"), "cats", [3.0, 0.0, 0.5], ["red", "big", "cat"]),
    (texts("a", "dog", "Dog"), "dogs", [0.0, 2.0, 0.0], ["dog", "dog"]),
    (texts("the"), "cats", [0.0, 0.0, 0.0], [""]),
]


@pytest.mark.parametrize("interpret", [True, False], ids=["interpreted", "compiled"])
def test_texts_in_and_out_around_a_program(interpret: bool) -> None:
    prepared = backend.prepare(classifier(), interpret=interpret)
    for words, label, score, clean in SENTENCES:
        found = prepared.run([words])
        assert [found[0].tolist(), found[1].tolist(), found[2].tolist()] == [[label], score, clean]
    assert len(prepared.session._staged._sessions) == 1  # one program for all lengths


def test_the_same_in_onnxruntime() -> None:
    for words, *_ in SENTENCES:
        for a, b in zip(
            drop_in.InferenceSession(classifier()).run(None, {"words": words}), by_onnxruntime(classifier(), {"words": words}), strict=True
        ):
            assert a.tolist() == np.asarray(b).tolist()


def test_inputs_are_texts_to_users_of_the_drop_in() -> None:
    session = drop_in.InferenceSession(classifier())
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [("words", "tensor(string)", ["n"])]
    assert session.run(["label"], {"words": np.array(["red", "cat"])})[0].tolist() == ["cats"]
    assert session.run(["label"], {"words": np.array([b"dog"])})[0].tolist() == ["dogs"]


def test_moving_texts() -> None:
    nodes = [
        helper.make_node("Concat", ["x", "y"], ["both"], axis=0),
        helper.make_node("Gather", ["both", "at"], ["picked"]),
        helper.make_node("Unsqueeze", ["picked", "one"], ["column"]),
        helper.make_node("StringConcat", ["column", "y"], ["pairs"]),
        helper.make_node("Equal", ["pairs", "wanted"], ["same"]),
        helper.make_node("Cast", ["same"], ["number"], to=FLOAT),
        helper.make_node("ReduceSum", ["number"], ["total"], keepdims=0),
        helper.make_node("Shape", ["pairs"], ["shape"]),
        helper.make_node("Cast", ["total"], ["text"], to=STRING),
    ]
    weights = [
        helper.make_tensor("wanted", STRING, [], [b"ac"]), onnx.numpy_helper.from_array(np.array([1], np.int64), "one"),
    ]  # fmt: skip
    outputs = [info("pairs", STRING, None, None), info("total", FLOAT), info("shape", INT64, 2), info("text", STRING)]
    proto = model(nodes, [info("x", STRING, "n"), info("y", STRING, "m"), info("at", INT64, "k")], outputs, weights)
    pairs, total, shape, text = backend.run_model(proto, [texts("a", "b"), texts("c", "ü"), np.array([0, 0, -1])], interpret=True)
    assert pairs.tolist() == [["ac", "aü"], ["ac", "aü"], ["üc", "üü"]] and total == 2 and shape.tolist() == [3, 2]
    assert text.item() == "2.0"


def test_splitting() -> None:
    nodes = [helper.make_node("StringSplit", ["x"], ["parts", "counts"], delimiter=".", maxsplit=1)]
    proto = model(nodes, [info("x", STRING, "n")], [info("parts", STRING, None, None), info("counts", INT64, None)])
    parts, counts = backend.run_model(proto, [texts("a.b.c", "d", "")], interpret=True)
    assert parts.tolist() == [["a", "b.c"], ["d", ""], ["", ""]] and counts.tolist() == [2, 1, 1]


@pytest.mark.parametrize("pattern, expected", [(r"[a-z]+@(x|y)\.org", [True, False, False]), ("a.*", [True, True, False])])
def test_patterns_match_the_whole(pattern: str, expected: list[bool]) -> None:
    proto = model([helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern)], [info("x", STRING, "n")], [info("y", 9, "n")])
    x = texts("abc@x.org", "abc@x.org.", "")
    assert backend.run_model(proto, [x], interpret=True)[0].tolist() == expected
    assert by_onnxruntime(proto, {"x": x})[0].tolist() == expected


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)a", "(?<!b)a"])
def test_patterns_that_re2_does_not_have(pattern: str) -> None:
    proto = model([helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern)], [info("x", STRING, "n")], [info("y", 9, "n")])
    with pytest.raises(UnsupportedError, match="looks around or refers to a group"):
        backend.run_model(proto, [texts("aa")], interpret=True)


def test_case_matters_where_it_is_said_to() -> None:
    for sensitive, kept in ((1, ["THE", "CAT"]), (0, ["CAT"])):
        node = helper.make_node(
            "StringNormalizer", ["x"], ["y"], case_change_action="UPPER", is_case_sensitive=sensitive, stopwords=["the"], locale="C"
        )
        proto = model([node], [info("x", STRING, "n")], [info("y", STRING, None)])
        assert backend.run_model(proto, [texts("The", "the", "cat")], interpret=True)[0].tolist() == kept
        assert by_onnxruntime(proto, {"x": texts("The", "the", "cat")})[0].tolist() == kept


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("indexes", [[0, 1, 2, 3, 4, 5, 6, 7], [4, 0, 1, 5, 2, 7, 8, 3]], ids=["in order", "out of order"])
def test_ngrams_of_integers_are_a_program(mode: str, indexes: list[int]) -> None:
    weights = {"weights": [0.5, 2.0, 3.0, 1.0, 0.25, 4.0, 1.5, 2.5]}
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], mode=mode, min_gram_length=1, max_gram_length=3, max_skip_count=2,
                            ngram_counts=[0, 3, 9], ngram_indexes=indexes, pool_int64s=[1, 2, 3, 1, 2, 2, 3, 3, 3, 1, 2, 3, 2, 2, 2],
                            **(weights if mode != "TF" else {}))  # fmt: skip
    proto = model([node], [info("x", INT64, "b", "n")], [info("y", FLOAT, "b", None)])
    if mode != "TF" and indexes[0]:
        with pytest.raises(Error, match="out of order"):
            pliant.from_onnx(proto)
        return
    compiled = pliant.compile(pliant.from_onnx(proto))
    for shape in ((2, 12), (3, 2), (1, 1)):
        x = np.random.default_rng(3).integers(1, 4, shape)
        np.testing.assert_allclose(compiled(x), by_onnxruntime(proto, {"x": x})[0], rtol=1e-6)
    assert not compiled(np.zeros((2, 0), np.int64)).any()


def test_ngrams_by_hand() -> None:
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], mode="TFIDF", min_gram_length=1, max_gram_length=2, max_skip_count=1,
                            ngram_counts=[0, 2], ngram_indexes=[0, 1, 2], pool_int64s=[1, 2, 1, 3], weights=[1.0, 0.5, 10.0])  # fmt: skip
    proto = model([node], [info("x", INT64, "n")], [info("y", FLOAT, 3)])
    assert pliant.compile(pliant.from_onnx(proto))(np.array([1, 2, 3, 1, 3])).tolist() == [2, 0.5, 20]  # 1 _ 3, and 1 3


def test_labels_of_numbers_are_a_program() -> None:
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_floats=[1.0, float("nan"), 3.0],
                            values_int64s=[10, 20, 30], default_int64=-5)  # fmt: skip
    proto = model([node], [info("x", FLOAT, "n", "m")], [info("y", INT64, "n", "m")])
    x = np.array([[1, 2, np.nan], [3, -1, 1]], np.float32)
    assert pliant.compile(pliant.from_onnx(proto))(x).tolist() == [[10, -5, 20], [30, -5, 10]]
    assert by_onnxruntime(proto, {"x": x})[0].tolist() == [[10, -5, 20], [30, -5, 10]]


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(UnsupportedError, match="InferenceSession"):
        pliant.from_onnx(classifier())
    session = drop_in.InferenceSession(classifier())
    with pytest.raises(Error, match="a tensor of texts, not of float32"):
        session.run(None, {"words": np.zeros(3, np.float32)})
    with pytest.raises(Error, match="element of type `int`"):
        session.run(None, {"words": texts("a", 3)})  # type: ignore[arg-type]
    with pytest.raises(Error, match="which is not that of the model"):
        session.run(None, {"words": texts("a", "b").reshape(1, 2)})
    sort = model([helper.make_node("NonZero", ["x"], ["y"])], [info("x", STRING, "n")], [info("y", INT64, None, None)])
    with pytest.raises(UnsupportedError, match="operators on texts are not supported"):
        backend.prepare(sort)
    for node, what in (
        (helper.make_node("StringConcat", ["x"], ["y"]), "it has 1 inputs, 2 are expected"),
        (helper.make_node("StringSplit", ["x"], ["y"], color=3), 'there is no attribute "color"'),
        (helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=3), 'attribute "pattern" is an integer'),
    ):
        with pytest.raises(ModelFileError, match=what):
            backend.prepare(model([node], [info("x", STRING, "n")], [info("y", STRING, None)]))
    wrong = model([helper.make_node("RegexFullMatch", ["x"], ["y"], pattern="(")], [info("x", STRING, "n")], [info("y", 9, None)])
    with pytest.raises(ModelFileError, match="is not a regular expression"):
        backend.run_model(wrong, [texts("a")])
    unknown = model([helper.make_node("Unknown", ["x"], ["y"], domain="a.b"), helper.make_node("Identity", ["t"], ["z"])],
                    [info("x", FLOAT, "n"), info("t", STRING, "n")], [info("y", FLOAT, "n"), info("z", STRING, "n")])  # fmt: skip
    with pytest.raises(UnsupportedError, match=r"a\.b\.Unknown"):
        backend.prepare(unknown)
    short = model([helper.make_node("Identity", ["w"], ["y"])], [], [info("y", STRING, 2)], [helper.make_tensor("w", STRING, [1], [b"a"])])
    short.graph.initializer[0].dims[0] = 2
    with pytest.raises(ModelFileError, match="has 1 texts, and the shape"):
        backend.run_model(short, [])
