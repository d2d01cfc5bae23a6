"""Flash attention with online softmax: tiles of 6 queries visit tiles of 64 keys in order; the full score matrix is never in memory.

    keys[h, t, :, 64] = a tile of keys, transposed                                       once for all queries
    for each head and tile of queries, in parallel:
        for each tile of keys that one of them sees:
            scores[6, 64] = q[6, :] @ keys[:, 64] * scale + mask, -inf where unseen      16 columns at once in registers
            new = max(best, scores); p = decay(scores - new); shrink = decay(best - new); best = new
            total = total * shrink + p, in lanes;  acc[6, :] = acc * shrink + p @ v
        out = acc / total                                                                zeros where nothing is seen

A query is computed by the same operations in a tile and alone, and key tiles have fixed positions. So results depend neither on the other
queries nor on the number of threads. Masked keys of a tile add exact zeros. The sign of a zero result is cleared, because it could depend
on how many zeros were added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....dtype import bool_, f32, i64
from ....graph.ops.attention import AttentionAttrs, seen
from ....graph.ops.elementwise import project
from ....loop.buffer import Buffer
from ....loop.stmt import Alloc, For, If, Let, LoopKind, Stmt, Store, seq
from ....support.record import dataclass
from ....sym.expr import Add, And, Call, Cast, Const, Div, Eq, Expr, Le, Lt, Max, Min, Mul, MulAdd, Select, Sub, Var, product
from .build import ONE, ZERO, Site

# 6 x 16 accumulators take 12 of the 16 AVX2 registers; two key vectors and a broadcast query need the rest: the usual GEMM register tile.
# A score tile of 6 x 64 floats is 1.5 KiB and stays in the L1 cache. `_quarters` relies on KEYS being four times LANES.
ROWS, KEYS, LANES = 6, 64, 16
NEVER, NOTHING = Const(-float("inf"), f32), Const(0.0, f32)
Make = Callable[[Expr], Stmt]


def flash(site: Site) -> Stmt:
    """Builds `scaled_dot_product_attention` for a constant head_dim."""
    attention = _Attention.of(site)
    return seq(Alloc(attention.turned), attention.turn(), attention.attend())


def flash_moved(site: Site) -> tuple[Buffer, ...]:
    """Queries and keys are copied once and results are written once, so their memory order is free; values are read again by each tile."""
    return site.buffer(0), site.buffer(1), site.outs[0]


@dataclass(frozen=True, slots=True)
class _Heads:
    """An operand seen as [heads, rows, width]: all leading dims are flattened into one."""

    whole: Buffer

    @property
    def shape(self) -> tuple[Expr, Expr, Expr]:
        rows, width = self.whole.shape[-2:]
        return product(self.whole.shape[:-2]), rows, width

    def at(self, h: Expr, row: Expr, x: Expr) -> tuple[Expr, ...]:
        """Returns the indices into the operand of an element of a head."""
        return *_unflattened(h, self.whole.shape[:-2]), row, x

    def load(self, h: Expr, row: Expr, x: Expr) -> Expr:
        """Loads an element of a head as f32."""
        return _wide(self.whole.load(*self.at(h, row, x)))


@dataclass(frozen=True, slots=True)
class _Attention:
    """The operands, and the workspace for the transposed key tiles."""

    site: Site
    q: _Heads  # [heads, n, d]
    k: _Heads  # [kv_heads, m, d]
    v: _Heads  # [kv_heads, m, e]
    out: _Heads  # [heads, n, e]
    turned: Buffer  # [kv_heads, tiles, d, 64]

    @staticmethod
    def of(site: Site) -> _Attention:
        q, k, v, out = map(_Heads, (site.buffer(0), site.buffer(1), site.buffer(2), site.outs[0]))
        heads, m, d = k.shape
        turned = Buffer("turned", f32, (heads, _tiles(m, KEYS), d, Const(KEYS, i64)), scope="workspace")
        return _Attention(site, q, k, v, out, turned)

    @property
    def attrs(self) -> AttentionAttrs:
        attrs: AttentionAttrs = self.site.attrs
        return attrs

    def turn(self) -> Stmt:
        """Transposes the keys into tiles; columns beyond the last key are zero."""
        m, d = self.k.shape[1:]
        h, t, x, at = (Var(name, i64) for name in ("h", "t", "x", "at"))
        key = t * KEYS + x
        value = Select(Lt(key, m), self.k.load(h, key, at), NOTHING)
        body = For(x, ZERO, Const(KEYS, i64), "serial", For(at, ZERO, d, "serial", Store(self.turned, (h, t, at, x), value)))
        return _shared_out((h, t), self.turned.shape[:2], body)

    def attend(self) -> Stmt:
        """Runs all queries in tiles of ROWS; a single remaining query (decoding) has code for one row."""
        n = self.q.shape[1]
        h, tile, first = Var("h", i64), Var("tile", i64), Var("first", i64)
        alone = Eq(n - first, ONE)
        body = seq(Let(first, tile * ROWS), If(alone, _Tile(self, h, first, 1).body(), _Tile(self, h, first, ROWS).body()))
        return _shared_out((h, tile), (self.q.shape[0], _tiles(n, ROWS)), body)

    def shared(self, h: Expr) -> Expr:
        """Returns the KV head of a query head (grouped-query attention)."""
        heads, shared = (b.shape[-3] if b.ndim > 2 else ONE for b in (self.site.buffer(0), self.site.buffer(1)))
        return h if heads is shared else h // (heads // shared)

    def scale(self) -> Expr:
        scale = self.attrs.scale
        return Const(scale, f32) if scale is not None else Div(Const(1.0, f32), Call("sqrt", Cast(f32, self.q.shape[2])))


@dataclass(frozen=True, slots=True)
class _Tile:
    """A tile of adjacent queries of a head; rows beyond the last query repeat it, and `end` does not store them."""

    of: _Attention
    h: Expr
    first: Expr
    rows: int

    def body(self) -> Stmt:
        """Returns the code of a tile: load queries, visit all key tiles with online softmax, divide and store."""
        d, e = int(self.of.q.shape[2].value), int(self.of.v.shape[2].value)  # type: ignore[attr-defined]
        names = {"queries": (d,), "acc": (e,), "best": (), "total": (LANES,), "shrink": (), "score": (KEYS,), "lanes": (LANES,)}
        b = {name: _stack(name, self.rows, *shape) for name, shape in names.items()}
        kv, t = Var("kv", i64), Var("t", i64)
        stop = Var("stop", i64)

        def begin(r: Expr) -> Stmt:
            queries = _over("x", d, "vector", lambda x: Store(b["queries"], (r, x), Mul(self.query(r, x), self.of.scale())))
            zero = _over("x", e, "vector", lambda x: Store(b["acc"], (r, x), NOTHING))
            return seq(Store(b["best"], (r,), NEVER), _lanes(lambda x: Store(b["total"], (r, x), NOTHING)), queries, zero)

        def end(r: Expr) -> Stmt:
            total = b["total"].load(r, ZERO)
            divisor = Select(Eq(total, NOTHING), Const(1.0, f32), total)
            at = self.first + r

            def write(x: Expr) -> Stmt:
                value = Add(Div(b["acc"].load(r, x), divisor), NOTHING)  # -0.0 + 0.0 is 0.0
                return Store(self.of.out.whole, self.of.out.at(self.h, at, x), _narrow(self.of.out.whole, value))

            return If(Lt(at, self.of.q.shape[1]), _over("x", e, "vector", write))

        visit = seq(*self.scores(b, kv, t, stop), *_softmax(b, self.rows_do), *self.mix(b, kv, t, stop))
        there = And(Lt(ZERO, self.of.k.shape[1]), Lt(kv, self.of.k.shape[0]))  # true if there are keys and heads; the bounds proofs need it
        tiles = For(t, self.first_tile(), Min(_tiles(stop, KEYS), self.of.turned.shape[1]), "serial", visit)
        return seq(
            *(Alloc(x) for x in b.values()), Let(kv, self.of.shared(self.h)), Let(stop, self.last_key()),
            self.rows_do(begin), If(there, tiles),
            *map(self.rows_do, _halves(b["total"], Add)), self.rows_do(end),
        )  # fmt: skip

    def rows_do(self, make: Make) -> Stmt:
        return _over("r", self.rows, "unroll", make)

    def row(self, r: Expr) -> Expr:
        """Returns the query of a row of the tile."""
        return self.first if self.rows == 1 else Min(self.first + r, self.of.q.shape[1] - 1)

    def query(self, r: Expr, x: Expr) -> Expr:
        return self.of.q.load(self.h, self.row(r), x)

    def last_key(self) -> Expr:
        """Returns the end of the range of keys that some row of the tile attends to."""
        m = self.of.k.shape[1]
        return Min(m, Max(self.row(Const(self.rows - 1, i64)) + self.of.attrs.offset + 1, ZERO)) if self.of.attrs.is_causal else m

    def first_tile(self) -> Expr:
        window = self.of.attrs.window
        return ZERO if window is None else Max(self.first + self.of.attrs.offset - (window - 1), ZERO) // KEYS

    def scores(self, b: dict[str, Buffer], kv: Expr, t: Expr, stop: Expr) -> list[Stmt]:
        """Computes the scores of a key tile (a 6x16 register-tiled GEMM), then applies the masks."""
        dots = Buffer("dots", f32, (Const(self.rows, i64), Const(LANES, i64)), scope="register")
        d = self.of.q.shape[2]

        def columns(c: Expr) -> Stmt:
            def step(at: Expr) -> Stmt:
                def product_of(r: Expr, x: Expr) -> Expr:
                    return MulAdd(b["queries"].load(r, at), self.of.turned.load(kv, t, at, c * LANES + x), dots.load(r, x))

                return self.rows_do(lambda r: _lanes(lambda x: Store(dots, (r, x), product_of(r, x))))

            at = Var("d", i64)
            clear = self.rows_do(lambda r: _lanes(lambda x: Store(dots, (r, x), NOTHING)))
            write = self.rows_do(lambda r: _lanes(lambda x: Store(b["score"], (r, c * LANES + x), dots.load(r, x))))
            return seq(Alloc(dots), clear, For(at, ZERO, d, "serial", step(at)), write)

        left = Var("left", i64)
        c = Var("c", i64)
        count = _tiles(Min(left, Const(KEYS, i64)), LANES)  # columns beyond the last key are not computed: `hidden` overwrites them
        stmts: list[Stmt] = [Let(left, stop - t * KEYS), For(c, ZERO, count, "serial", columns(c))]
        if len(self.of.site.args) == 4:
            stmts.append(self.with_mask(b["score"], t, left))
        hide = self.rows_do(lambda r: _over("x", KEYS, "vector", lambda x: self.hidden(b["score"], r, t, x, left)))
        return [*stmts, If(self.all_seen(t, left), seq(), hide)]

    def all_seen(self, t: Expr, left: Expr) -> Expr:
        """True (at run time) if causal mask, window and length hide no key of the tile from any row, so that masking can be skipped."""
        attrs, last = self.of.attrs, self.row(Const(self.rows - 1, i64))
        visible: Expr = Le(Const(KEYS, i64), left)
        if attrs.is_causal:
            visible = And(visible, Le(t * KEYS + (KEYS - 1), self.first + attrs.offset))
        return visible if attrs.window is None else And(visible, Lt(last + attrs.offset - attrs.window, t * KEYS))

    def hidden(self, score: Buffer, r: Expr, t: Expr, x: Expr, left: Expr) -> Stmt:
        """Sets the score of a masked key to -inf."""
        visible: Expr = Lt(x, left)
        for condition in seen(self.of.attrs, self.row(r), t * KEYS + x):
            visible = And(visible, condition)
        return Store(score, (r, x), Select(visible, score.load(r, x), NEVER))

    def with_mask(self, score: Buffer, t: Expr, left: Expr) -> Stmt:
        """Applies the mask operand to the scores; a full tile has a loop of constant length, which vectorizes without a tail."""
        site = self.of.site
        whole = site.buffer(0)
        scores = (*whole.shape[:-1], site.buffer(1).shape[-2])
        shape = site.args[3].shape if isinstance(site.args[3], Buffer) else ()

        def change(r: Expr, x: Expr) -> Stmt:
            at = (*_unflattened(self.h, whole.shape[:-2]), self.row(r), t * KEYS + x)
            mask, old = site.read(3, *project(shape, scores, at)), score.load(r, x)
            return Store(score, (r, x), Select(mask, old, NEVER) if mask.dtype is bool_ else Add(old, _wide(mask)))

        def part(r: Expr) -> Stmt:
            x = Var("x", i64)
            return For(x, ZERO, left, "vector", change(r, x))

        all_of_it = self.rows_do(lambda r: _over("x", KEYS, "vector", lambda x: change(r, x)))
        return If(Le(Const(KEYS, i64), left), all_of_it, self.rows_do(part))

    def mix(self, b: dict[str, Buffer], kv: Expr, t: Expr, stop: Expr) -> list[Stmt]:
        """Updates the accumulators: `acc = acc * shrink + p @ v` for a key tile, in register tiles."""
        e = int(self.of.v.shape[2].value)  # type: ignore[attr-defined]
        wide = LANES if e % LANES == 0 else LANES // 2
        part = Buffer("part", f32, (Const(self.rows, i64), Const(wide, i64)), scope="register")
        acc, score = b["acc"], b["score"]

        def columns(c: Expr) -> Stmt:
            def step(key: Expr) -> Stmt:
                def product_of(r: Expr, x: Expr) -> Expr:
                    place = Min(t * KEYS + key, self.of.v.shape[1] - 1)  # `stop` implies it; it lets the bounds proof succeed
                    return MulAdd(score.load(r, key), self.of.v.load(kv, place, c * wide + x), part.load(r, x))

                return self.rows_do(lambda r: _over("x", wide, "vector", lambda x: Store(part, (r, x), product_of(r, x))))

            def shrunk(r: Expr) -> Stmt:
                return _over("x", wide, "vector", lambda x: Store(part, (r, x), Mul(acc.load(r, c * wide + x), b["shrink"].load(r))))

            key = Var("key", i64)
            write = self.rows_do(lambda r: _over("x", wide, "vector", lambda x: Store(acc, (r, c * wide + x), part.load(r, x))))
            count = Min(stop - t * KEYS, Const(KEYS, i64))
            return seq(Alloc(part), self.rows_do(shrunk), For(key, ZERO, count, "serial", step(key)), write)

        return [_over("c", e // wide, "serial", columns)]


def _softmax(b: dict[str, Buffer], rows_do: Callable[[Make], Stmt]) -> list[Stmt]:
    """Online softmax of a score tile: updates the running maximum, rescales, and replaces scores by exp(score - maximum).

    Each step runs for all rows before the next step, so that the rows hide each other's latency.
    """
    score, lanes, best, shrink, total = (b[name] for name in ("score", "lanes", "best", "shrink", "total"))
    new, safe = Var("new", f32), Var("safe", f32)

    def grow(r: Expr) -> Stmt:
        return seq(
            Let(new, Max(best.load(r), lanes.load(r, ZERO))),
            Let(safe, Select(Eq(new, NEVER), NOTHING, new)),
            Store(shrink, (r,), Call("decay", Sub(best.load(r), safe))),
            Store(best, (r,), new),
            _over("x", KEYS, "vector", lambda x: Store(score, (r, x), Call("decay", Sub(score.load(r, x), safe)))),
        )

    def add(r: Expr, x: Expr) -> Stmt:
        return Store(total, (r, x), MulAdd(total.load(r, x), shrink.load(r), _quarters(score, r, x, Add)))

    largest = [lambda r: _lanes(lambda x: Store(lanes, (r, x), _quarters(score, r, x, Max))), *_halves(lanes, Max)]
    return [*map(rows_do, largest), rows_do(grow), rows_do(lambda r: _lanes(lambda x: add(r, x)))]


def _quarters(score: Buffer, r: Expr, x: Expr, join: Callable[[Expr, Expr], Expr]) -> Expr:
    """Reduces the 64 scores of a row to one value per lane."""
    parts = [score.load(r, x + c * LANES) for c in range(KEYS // LANES)]
    return join(join(parts[0], parts[1]), join(parts[2], parts[3]))


def _halves(lanes: Buffer, join: Callable[[Expr, Expr], Expr]) -> list[Make]:
    """Returns the steps of a tree reduction of the lanes of a row into lane 0."""

    def halved(half: int) -> Make:
        return lambda r: _over("x", half, "vector", lambda x: Store(lanes, (r, x), join(lanes.load(r, x), lanes.load(r, x + half))))

    return [halved(half) for half in (8, 4, 2, 1)]


def _shared_out(loops: tuple[Var, Var], extents: tuple[Expr, ...], body: Stmt) -> Stmt:
    """Makes both loops parallel: threads divide the inner loop if the outer one has a single iteration."""
    outer, inner = loops
    return For(outer, ZERO, extents[0], "parallel", For(inner, ZERO, extents[1], "parallel", body))


def _over(name: str, extent: int, kind: LoopKind, make: Make) -> Stmt:
    x = Var(name, i64)
    return For(x, ZERO, Const(extent, i64), kind, make(x))


def _lanes(make: Make) -> Stmt:
    return _over("x", LANES, "vector", make)


def _stack(name: str, *shape: int) -> Buffer:
    return Buffer(name, f32, tuple(Const(e, i64) for e in shape), scope="stack")


def _tiles(extent: Expr, size: int) -> Expr:
    return (extent + (size - 1)) // size


def _unflattened(flat: Expr, shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """Returns the indices of the element of `shape` with a row-major index."""
    indices: list[Expr] = []
    for extent in reversed(shape[1:]):
        indices.append(flat % extent)
        flat = flat // extent
    return tuple(reversed([*indices, flat][: len(shape)]))


def _wide(e: Expr) -> Expr:
    return e if e.dtype is f32 else Cast(f32, e)


def _narrow(to: Buffer, e: Expr) -> Expr:
    return e if to.dtype is f32 else Cast(to.dtype, e)
