"""TreeEnsemble: evaluates all trees for all rows in parallel, one level at a time.

Nodes and leaves are in one table, and a leaf is its own successor: after as many steps as the deepest tree has levels, every row is at a
leaf of every tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dtype import i64
from ....support.record import dataclass
from ..emit import ops
from ..node_context import NodeContext
from ..registry import rule
from .labels import ML

Array = np.ndarray[Any, Any]
_COMPARE = (ops.less_equal, ops.less, ops.greater_equal, ops.greater, ops.equal, ops.not_equal)  # by mode, 0 to 5
MEMBER = 6  # the mode of set membership
DEEPEST = 1024  # the deepest tree: the walk is unrolled, each level adds nodes to the program


@dataclass(frozen=True, slots=True)
class Trees:
    """A tree ensemble as tables of nodes, followed by leaves: feature, threshold, comparison mode, and the two successors."""

    feature: Array
    split: Array
    mode: Array
    missing: Array  # True if NaN takes the true branch
    members: Array  # [nodes, members], padded with NaN, which equals nothing
    yes: Array
    no: Array
    roots: Array
    depth: int


@rule("TreeEnsemble", domain=ML)
def tree_ensemble(site: NodeContext) -> Any:
    """Imports TreeEnsemble: the aggregated leaf weights of each target, [rows, targets]."""
    site.require(site.rank(0) == 2, f"the operand has {site.rank(0)} dims, 2 are expected")
    trees = _trees(site)
    x, rows = site.x(0), site.tensor(0).shape[0]
    at = ops.expand(ops.constant(trees.roots.reshape(1, -1)), (rows, len(trees.roots)))
    for _ in range(trees.depth):
        at = ops.where(_holds(x, at, trees), ops.take(ops.constant(trees.yes), at), ops.take(ops.constant(trees.no), at))
    return _transformed(site, _gathered(site, at, len(trees.feature)))


def _holds(x: Any, at: Any, trees: Trees) -> Any:
    """Returns the conditions of the tree nodes `at` for the rows of `x`, bool[rows, trees]."""
    value = ops.gather(x, ops.take(ops.constant(trees.feature), at), 1)
    split = ops.take(ops.constant(trees.split), at)
    mode = ops.take(ops.constant(trees.mode), at)
    holds: Any = None
    for kind in sorted(set(trees.mode.tolist())):
        if kind == MEMBER:
            sets = ops.take(ops.constant(trees.members), at)  # [rows, trees, members]
            one = ops.max(ops.cast(ops.equal(ops.unsqueeze(value, 2), sets), i64), axis=2)
            this: Any = ops.greater(one, 0)
        else:
            this = _COMPARE[kind](value, split)
        holds = this if holds is None else ops.where(ops.equal(mode, kind), this, holds)
    return ops.logical_or(holds, ops.logical_and(ops.is_nan(value), ops.take(ops.constant(trees.missing), at)))


def _gathered(site: NodeContext, at: Any, nodes: int) -> Any:
    """Returns the weights of the leaves `at`, aggregated by target: [rows, targets]."""
    weights, targets = site.array("leaf_weights"), np.asarray(site.ints("leaf_targetids", []), np.int64)
    assert weights is not None
    count, how = site.integer("n_targets", int(targets.max(initial=0)) + 1), site.integer("aggregate_function", 1)
    site.require(how in (0, 1, 2, 3) and 0 < count <= 1 << 16, f"{count} targets, aggregated by function {how}")
    site.require(bool(((targets >= 0) & (targets < count)).all()), "a leaf is for a target that there is not")
    before = nodes - len(weights)
    table = np.concatenate([np.zeros(before, weights.dtype), weights])
    places = np.concatenate([np.zeros(before, np.int64), targets])
    votes = ops.unsqueeze(ops.take(ops.constant(table), at), 2)  # [rows, trees, 1]
    mine = ops.equal(ops.unsqueeze(ops.take(ops.constant(places), at), 2), ops.constant(np.arange(count)))
    limit = float(np.finfo(weights.dtype).max)
    nothing = {2: limit, 3: -limit}.get(how, 0.0)
    each = ops.where(mine, votes, nothing)
    if how >= 2:
        return ops.min(each, axis=1) if how == 2 else ops.max(each, axis=1)
    total: Any = ops.sum(each, axis=1)
    return ops.div(total, float(at.tensor.shape[1].value)) if how == 0 else total


def _transformed(site: NodeContext, y: Any) -> Any:
    """Returns `y` after the attribute `post_transform`: none, softmax or logistic; raises UnsupportedError for others."""
    kind = site.integer("post_transform", 0)
    if kind not in (0, 1, 2):
        raise site.unsupported(f"post_transform {kind} is not supported", help="supported: 0 (none), 1 (softmax), 2 (logistic)")
    return y if kind == 0 else ops.softmax(y, -1) if kind == 1 else ops.sigmoid(y)


def _trees(site: NodeContext) -> Trees:
    """Returns the tables of a tree ensemble from the attributes.

    Raises ModelFileError if an index is out of range or a walk does not end.
    """
    split, modes, weights = (site.array(n) for n in ("nodes_splits", "nodes_modes", "leaf_weights"))
    site.array("nodes_hitrates")
    assert split is not None and modes is not None and weights is not None
    lists = {n: np.asarray(site.ints(f"nodes_{n}", []), np.int64) for n in
             ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")}  # fmt: skip
    count, leaves = len(split), len(weights)
    tracks = np.asarray(site.ints("nodes_missing_value_tracks_true", None) or [0] * count, np.int64)
    roots = np.asarray(site.ints("tree_roots", []), np.int64)
    site.require(all(a.shape == (count,) for a in (split, modes, tracks, *lists.values())), "the lists of nodes have different lengths")
    site.require(len(site.ints("leaf_targetids", [])) == leaves > 0 and count > 0, "the lists of leaves have different lengths")
    site.require(bool((modes <= MEMBER).all()), "a node has a mode that there is not")
    site.require(len(roots) > 0 and bool(((roots >= 0) & (roots < count)).all()), "the root of a tree is no node")
    features = site.shape(0)[1]
    if not isinstance(features, int):
        raise site.needed_dim("the number of features must be known")
    site.require(
        bool(((lists["featureids"] >= 0) & (lists["featureids"] < features)).all()), f"a node looks at none of {features} features"
    )
    ways = []
    for way in ("true", "false"):
        to, leaf = lists[f"{way}nodeids"], lists[f"{way}leafs"] != 0
        site.require(bool(((to >= 0) & (to < np.where(leaf, leaves, count))).all()), "a branch leads to no node and no leaf")
        ways.append(np.concatenate([np.where(leaf, to + count, to), np.arange(leaves) + count]))
    tail = np.zeros(leaves, np.int64)
    return Trees(
        np.concatenate([lists["featureids"], tail]), np.concatenate([split, np.zeros(leaves, split.dtype)]),
        np.concatenate([modes.astype(np.int64), tail + int(modes[0])]), np.concatenate([tracks, tail]) != 0,
        _members(site, modes, leaves, split.dtype), ways[0], ways[1], roots, _depth(site, ways, roots, count),
    )  # fmt: skip


def _members(site: NodeContext, modes: Array, leaves: int, dtype: Any) -> Array:
    """Returns a NaN-padded table with a row per node and leaf, filled for membership nodes.

    Raises ModelFileError for a wrong number of sets. One NaN, if there are no such nodes.
    """
    listed = site.array("membership_values")
    at = np.nonzero(modes == MEMBER)[0]
    if not len(at):
        return np.full((1, 1), np.nan, dtype)
    values = np.zeros(0, dtype) if listed is None else listed
    ends = np.nonzero(np.isnan(values))[0]
    site.require(len(ends) == len(at) and (not len(values) or bool(np.isnan(values[-1]))), f"{len(ends)} sets for {len(at)} nodes")
    sets = np.split(values, ends + 1)[:-1]
    table = np.full((len(modes) + leaves, max(map(len, sets), default=1)), np.nan, dtype)
    for node, members in zip(at, sets, strict=True):
        table[node, : len(members)] = members
    return table


def _depth(site: NodeContext, ways: list[Array], roots: Array, count: int) -> int:
    """Returns the number of steps after which every walk from a root has reached a leaf; raises ModelFileError if a walk does not end."""
    at, steps = set(roots.tolist()), 0
    while at:
        steps += 1
        if steps > min(DEEPEST, count):
            raise site.wrong(f"a tree is deeper than {min(DEEPEST, count)} nodes")
        at = {int(w[k]) for k in at for w in ways if w[k] < count}
    return steps
