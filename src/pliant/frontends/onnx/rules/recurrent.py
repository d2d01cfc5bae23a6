"""RNN, GRU, LSTM: one matmul for the inputs of all time steps, then a loop over the steps.

DynamicQuantizeLSTM has quantized, transposed weights and uses integer matmuls: the inputs of all steps, and the state at every step, are
quantized dynamically.

The order of gates is that of ONNX: LSTM i o f c, GRU z r h. If sequences have different lengths, a sequence keeps its state after its
end, and its outputs there are 0; the backward direction reverses each sequence within its length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....dtype import f32, i64
from ....support.record import dataclass
from ..emit import ops
from ..loops import Loop
from ..node_context import NodeContext
from ..registry import rule

Unit = Callable[[Any], Any]
QUANTIZED = "DynamicQuantizeLSTM"
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4, QUANTIZED: 4}  # the number of gates
# The standard's default activations, and the default parameters of activations.
_OF_LSTM = ["Sigmoid", "Tanh", "Tanh"]
_DEFAULT = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": _OF_LSTM, QUANTIZED: _OF_LSTM}
_ALPHA = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "Elu": 1.0, "HardSigmoid": 0.2, "Affine": 1.0, "ScaledTanh": 1.0}
_BETA = {"HardSigmoid": 0.5, "Affine": 0.0, "ScaledTanh": 1.0}


@dataclass(frozen=True, slots=True)
class Codes:
    """A quantized weight [inputs, outputs] of a recurrent layer, with one scale and zero point, or one per column."""

    codes: Any
    scale: Any
    zero: Any


def _times(x: Any, w: Any) -> Any:
    """Returns the matmul of x with a float weight [outputs, inputs], or with a quantized one (x is then quantized dynamically)."""
    if not isinstance(w, Codes):
        return ops.matmul(x, w, transpose_b=True)
    codes, scale, zero = ops.dynamic_quantize_linear(x)
    total = ops.matmul_integer(codes, w.codes, zero, w.zero)
    return ops.mul(ops.cast(total, f32), ops.mul(scale, w.scale))


def _unit(site: NodeContext, name: str, alpha: float | None, beta: float | None) -> Unit:
    """Returns the activation function of that name, with the standard's defaults for missing parameters.

    Raises UnsupportedError for others.
    """
    a = _ALPHA.get(name, 0.0) if alpha is None else alpha
    b = _BETA.get(name, 0.0) if beta is None else beta
    units: dict[str, Unit] = {
        "Relu": ops.relu,
        "Tanh": ops.tanh,
        "Sigmoid": ops.sigmoid,
        "Affine": lambda x: ops.add(ops.mul(x, a), b),
        "LeakyRelu": lambda x: ops.leaky_relu(x, alpha=a),
        "ThresholdedRelu": lambda x: ops.thresholded_relu(x, alpha=a),
        "ScaledTanh": lambda x: ops.mul(ops.tanh(ops.mul(x, b)), a),
        "HardSigmoid": lambda x: ops.hard_sigmoid(x, alpha=a, beta=b),
        "Elu": lambda x: ops.elu(x, alpha=a),
        "Softsign": ops.softsign,
        "Softplus": ops.softplus,
    }
    if name not in units:
        raise site.unsupported(f'activation "{name}" is not supported', help=f"supported: {', '.join(units)}")
    return units[name]


def _units(site: NodeContext, directions: int) -> list[list[Unit]]:
    """Returns the activation functions of each direction, with their parameters and the clip limit applied."""
    each = len(_DEFAULT[site.op])
    names = site.texts("activations", None) or _DEFAULT[site.op] * directions
    site.require(len(names) == each * directions, f'attribute "activations" has {len(names)} names, {each * directions} are expected')
    alphas, betas = iter(site.floats("activation_alpha", [])), iter(site.floats("activation_beta", []))
    known = {n.lower(): n for n in (*_ALPHA, "Relu", "Tanh", "Sigmoid", "Softsign", "Softplus")}
    units: list[Unit] = []
    for name in names:
        plain = known.get(name.lower(), name)
        alpha = next(alphas, None) if plain in _ALPHA else None
        units.append(_unit(site, plain, alpha, next(betas, None) if plain in _BETA else None))
    limit = site.real("clip", None)
    if limit is not None:
        units = [_clipped(f, limit) for f in units]
    return [units[k * each : (k + 1) * each] for k in range(directions)]


def _clipped(unit: Unit, limit: float) -> Unit:
    """Returns the activation applied to an input clamped to -limit..limit."""
    return lambda x: unit(ops.clip(x, -limit, limit))


@rule("RNN", "GRU", "LSTM")
@rule(QUANTIZED, domain="com.microsoft")
def recurrent(site: NodeContext) -> Any:
    """Imports RNN, GRU, LSTM and DynamicQuantizeLSTM with all their directions: the outputs, then the final states.

    Raises NeededError unless the number of hidden elements is known.
    """
    way = site.text("direction", "forward", "forward", "reverse", "bidirectional")
    directions = 2 if way == "bidirectional" else 1
    site.require(site.rank(0) == 3 and site.rank(1) == 3 and site.rank(2) == 3, "X, W and R have 3 dims")
    if site.integer("hidden_size", 0):
        site.settle(2, *((site.integer("hidden_size", 0), None) if site.op == QUANTIZED else (site.integer("hidden_size", 0),)))
    hidden, width = site.shape(2)[1:] if site.op == QUANTIZED else site.shape(2)[:0:-1]
    if not isinstance(hidden, int):
        raise site.needed_dim("the number of hidden elements must be known")
    size = GATES[site.op] * hidden
    site.settle(1, directions, *((None, size) if site.op == QUANTIZED else (size, None)))
    site.settle(2, directions, *((hidden, size) if site.op == QUANTIZED else (size, hidden)))
    width = size if not isinstance(width, int) else width
    site.require(site.integer("hidden_size", hidden) == hidden, f'attribute "hidden_size" is not {hidden}')
    site.require(site.shape(1)[0] == site.shape(2)[0] == directions, f"{directions} directions, and W has {site.shape(1)[0]}")
    site.require(width == GATES[site.op] * hidden, f"R is for {width} gates of {hidden} elements")
    rows = site.integer("layout", 0)
    x = ops.permute(site.x(0), (1, 0, 2)) if rows else site.x(0)  # [steps, batch, inputs]
    units = _units(site, directions)
    results = [_direction(site, x, k, hidden, way == "reverse" or k == 1, units[k]) for k in range(directions)]
    y = ops.stack([r[0] for r in results], 1)  # [steps, directions, batch, hidden]
    last = [ops.stack([r[1 + s] for r in results], 0) for s in range(_states(site))]
    if rows:
        y = ops.permute(y, (2, 0, 1, 3))
        last = [ops.permute(s, (1, 0, 2)) for s in last]
    return [y, *last]


def _states(site: NodeContext) -> int:
    """Returns the number of loop-carried states: h, and for LSTM also c."""
    return 1 if site.op in ("RNN", "GRU") else 2


def _weight(site: NodeContext, k: int, direction: int) -> Any:
    """Returns W or R of one direction; a quantized one with its scale and zero point, which are among the last inputs."""
    w = _part(site, k, direction)
    if site.op != QUANTIZED:
        return w
    scale, zero = 6 + 2 * k, 7 + 2 * k
    for at in (scale, zero):
        fits = site.shape(at) in ((site.shape(k)[0],), (site.shape(k)[0], site.shape(k)[2]))
        site.require(fits, f"input {at} has the shape {site.shape(at)}, one number is expected for a direction, or for each gate")
    return Codes(w, _part(site, scale, direction), _part(site, zero, direction))


def _part(site: NodeContext, k: int, direction: int) -> Any:
    """Returns the slice of input `k` for one direction; None if the input is omitted."""
    if not site.has(k):
        return None
    return ops.reshape(ops.slice(site.x(k), 0, direction, direction + 1), list(site.shape(k)[1:]))


def _direction(site: NodeContext, x: Any, k: int, hidden: int, back: bool, units: list[Unit]) -> list[Any]:
    """Emits one direction of a recurrent layer; returns its outputs [steps, batch, hidden] and its final states.

    With `back`, steps run from the end of each sequence.
    """
    steps, batch = x.tensor.shape[:2]
    of, op = x.tensor.dtype, site.op
    lengths = None
    if site.has(4):
        lengths = site.x(4) if site.dtype(4) is i64 else ops.cast(site.x(4), i64)
    if back:
        x = ops.flip(x, 0) if lengths is None else ops.reverse_sequence(x, lengths, axis=0, batch_axis=1)
    w, r, bias = _weight(site, 1, k), _weight(site, 2, k), _part(site, 3, k)
    size = GATES[op] * hidden
    wb, rb = (None, None) if bias is None else (ops.slice(bias, 0, 0, size), ops.slice(bias, 0, size, 2 * size))
    product = _times(x, w)  # [steps, batch, gates]
    product = product if wb is None else ops.add(product, wb)
    states = _states(site)
    init = [_initial(site, 5 + s, k, (batch, hidden), of) for s in range(states)]
    peep = _part(site, 7, k) if states == 2 else None
    step = {"RNN": _rnn, "GRU": _gru}.get(op, _lstm)
    loop = Loop(site)
    with loop.body() as at:
        inner = [loop.carry(v) for v in init]
        row = ops.take(product, at, 0)
        after = step(site, row, inner, r, rb, peep, hidden, units)
        shown = after[0]
        if lengths is not None:
            alive = ops.reshape(ops.less(at, lengths), (batch, 1))
            shown = ops.where(alive, shown, ops.full((batch, hidden), 0, of))
            after = [ops.where(alive, new, old) for new, old in zip(after, inner, strict=True)]
        for s, value in enumerate(after):
            loop.set(s + 1, value)
        whole = loop.collect(shown, at, steps)
    outs = loop.finish(lambda now: ops.less(now[0], steps))
    y = outs[whole]
    if back:
        y = ops.flip(y, 0) if lengths is None else ops.reverse_sequence(y, lengths, axis=0, batch_axis=1)
    return [y, *outs[1 : 1 + states]]


def _initial(site: NodeContext, k: int, direction: int, shape: tuple[Any, ...], of: Any) -> Any:
    """Returns the initial state of one direction; zeros if the input is omitted."""
    if not site.has(k):
        return ops.full(shape, 0, of)
    x = ops.permute(site.x(k), (1, 0, 2)) if site.integer("layout", 0) else site.x(k)
    return ops.reshape(ops.slice(x, 0, direction, direction + 1), shape)


def _gates(x: Any, count: int, hidden: int) -> list[Any]:
    """Returns the columns of `x` split into gates of `hidden` columns."""
    return [ops.slice(x, 1, k * hidden, (k + 1) * hidden) for k in range(count)]


def _plus(x: Any, bias: Any) -> Any:
    """Returns `x` plus a bias, if there is one."""
    return x if bias is None else ops.add(x, bias)


def _rnn(site: NodeContext, row: Any, states: list[Any], r: Any, rb: Any, peep: Any, hidden: int, units: list[Unit]) -> list[Any]:
    """Emits one step of an RNN, f(x + h @ R.T + b); returns the new state."""
    return [units[0](ops.add(row, _plus(ops.matmul(states[0], r, transpose_b=True), rb)))]


def _gru(site: NodeContext, row: Any, states: list[Any], r: Any, rb: Any, peep: Any, hidden: int, units: list[Unit]) -> list[Any]:
    """Emits one step of a GRU and returns the new state; with linear_before_reset, the reset gate is applied after the matmul."""
    h, (f, g) = states[0], units
    xz, xr, xh = _gates(row, 3, hidden)
    if site.integer("linear_before_reset", 0):
        hz, hr, hh = _gates(_plus(ops.matmul(h, r, transpose_b=True), rb), 3, hidden)
        z, reset = f(ops.add(xz, hz)), f(ops.add(xr, hr))
        new = g(ops.add(xh, ops.mul(reset, hh)))
    else:
        first, last = ops.slice(r, 0, 0, 2 * hidden), ops.slice(r, 0, 2 * hidden, 3 * hidden)
        bias = [None, None] if rb is None else [ops.slice(rb, 0, 0, 2 * hidden), ops.slice(rb, 0, 2 * hidden, 3 * hidden)]
        hz, hr = _gates(_plus(ops.matmul(h, first, transpose_b=True), bias[0]), 2, hidden)
        z, reset = f(ops.add(xz, hz)), f(ops.add(xr, hr))
        new = g(ops.add(xh, _plus(ops.matmul(ops.mul(reset, h), last, transpose_b=True), bias[1])))
    return [ops.add(ops.mul(ops.sub(1.0, z), new), ops.mul(z, h))]


def _lstm(site: NodeContext, row: Any, states: list[Any], r: Any, rb: Any, peep: Any, hidden: int, units: list[Unit]) -> list[Any]:
    """Emits one step of an LSTM, with optional peephole weights; returns the new h and c.

    With `input_forget`, the forget gate is 1 minus the input gate.
    """
    h, c = states
    f, g, out = units
    gates = ops.add(row, _plus(_times(h, r), rb))
    xi, xo, xf, xc = _gates(gates, 4, hidden)
    pi, po, pf = (None, None, None) if peep is None else [ops.slice(peep, 0, k * hidden, (k + 1) * hidden) for k in range(3)]
    i = f(_plus(xi, None if pi is None else ops.mul(pi, c)))
    forget = ops.sub(1.0, i) if site.integer("input_forget", 0) else f(_plus(xf, None if pf is None else ops.mul(pf, c)))
    cell = ops.add(ops.mul(forget, c), ops.mul(i, g(xc)))
    o = f(_plus(xo, None if po is None else ops.mul(po, cell)))
    return [ops.mul(o, out(cell)), cell]
