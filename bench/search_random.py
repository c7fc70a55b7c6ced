"""Times of the search alone on made-up transformer-like problems.

    python bench/search_random.py --layers 4 32 --mesh 8 --mesh 8x8 [--memory 0.5]

The problems have the shape of a training step: repeated blocks of matmuls, chains of elementwise ops and residual
additions, mirrored by a backward pass that reads the forward's tensors again, and an optimizer update per parameter.
Options are products of per-axis signatures, edge tables are alpha-beta costs of boxing.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import time
from functools import cache

import numpy as np

from sbpjax.search.problem import Edge, Problem, Usage
from sbpjax.search.solve import solve

FLOPS, MEMORY_RATE = 4e14, 3e12
LATENCY, RATE = (3e-4, 2e-5), (2.3e10, 3.5e11)  # outer and inner axis

MATMUL = ("BBB", "0B0", "B11", "10P", "PBP")  # x, w -> y on one axis
UNARY = ("BB", "00", "11")
LINEAR = (*UNARY, "PP")
BINARY = ("BBB", "000", "111")
ADD = (*BINARY, "PPP")
UPDATE = ("BBBBBBB", "0000000", "1111111")  # w, mu, nu, g -> w, mu, nu


def signatures(rows: tuple[str, ...], axes: int) -> list[tuple[str, ...]]:
    """All products of one-axis rows: for each operand and result, one letter an axis."""
    return [
        tuple("".join(row[i] for row in rows) for i in range(len(rows[0])))
        for rows in itertools.product(rows, repeat=axes)
    ]


class Builder:
    """Grows a problem op by op, keeping who makes and who reads each tensor."""

    def __init__(self, mesh: tuple[int, ...]) -> None:
        self.mesh, self.axes = mesh, len(mesh)
        self.costs: list[np.ndarray] = []
        self.names: list[str] = []
        self.edges: list[Edge] = []
        self.tables: list[np.ndarray] = []
        self.known: dict[object, int] = {}
        self.makers: list[tuple[int, tuple[str, ...]]] = []
        self.readers: list[list[tuple[int, tuple[str, ...]]]] = []
        self.bytes: list[float] = []
        self.born: list[int] = []
        self.clock = 0

    def share(self, placement: str) -> float:
        return float(np.prod([1 / n for n, a in zip(self.mesh, placement, strict=True) if a in "01"], initial=1.0))

    def tensor(self, node: int, placements: tuple[str, ...], nbytes: float) -> int:
        self.makers.append((node, placements))
        self.readers.append([])
        self.bytes.append(nbytes)
        self.born.append(self.clock)
        return len(self.makers) - 1

    def node(self, name: str, cost: np.ndarray) -> int:
        self.costs.append(cost)
        self.names.append(name)
        return len(self.costs) - 1

    def argument(self, name: str, nbytes: float) -> int:
        places = tuple("".join(p) for p in itertools.product("B01", repeat=self.axes))
        return self.tensor(self.node(name, np.zeros(len(places))), places, nbytes)

    def op(self, name: str, rows: tuple[str, ...], operands: list[int], flops: float, *results: float) -> list[int]:
        options = signatures(rows, self.axes)
        n_in = len(operands)
        seconds = []
        for option in options:
            split = np.prod([1 / n for i, n in enumerate(self.mesh) if any(p[i] in "01" for p in option)] or [1.0])
            local = sum(
                b * self.share(p)
                for b, p in zip([self.bytes[t] for t in operands] + list(results), option, strict=True)
            )
            seconds.append(max(flops * split / FLOPS, local / MEMORY_RATE))
        node = self.node(name, np.array(seconds))
        for i, tensor in enumerate(operands):
            self.readers[tensor].append((node, tuple(o[i] for o in options)))
        self.clock += 1
        return [self.tensor(node, tuple(o[n_in + i] for o in options), b) for i, b in enumerate(results)]

    @cache  # noqa: B019 - a builder lives for one problem
    def prices(self, nbytes: float) -> dict[tuple[str, str], float]:
        """Shortest paths of per-axis boxings between all placements."""
        places = ["".join(p) for p in itertools.product("B01P", repeat=self.axes)]
        dist = np.full((len(places),) * 2, np.inf)
        for i, a in enumerate(places):
            dist[i, i] = 0
            for j, b in enumerate(places):
                changed = [k for k in range(self.axes) if a[k] != b[k]]
                if len(changed) != 1:
                    continue
                k = changed[0]
                big = nbytes * max(self.share(a), self.share(b))
                level = k if self.axes > 1 else 1
                wire = LATENCY[min(level, 1)] + big * (1 - 1 / self.mesh[k]) / RATE[min(level, 1)]
                step = {
                    "PB": 2 * wire,
                    "P0": wire,
                    "P1": wire,
                    "0B": wire,
                    "1B": wire,
                    "01": wire / self.mesh[k] + 1e-5,
                    "10": wire / self.mesh[k] + 1e-5,
                    "B0": 1e-6,
                    "B1": 1e-6,
                }
                dist[i, j] = step.get(a[k] + b[k], np.inf)
        for k in range(len(places)):
            dist = np.minimum(dist, dist[:, k, None] + dist[k])
        return {(a, b): dist[i, j] for i, a in enumerate(places) for j, b in enumerate(places)}

    def table(self, rows: tuple[str, ...], columns: tuple[str, ...], nbytes: float) -> int:
        key = (rows, columns, nbytes)
        if key not in self.known:
            price = self.prices(nbytes)
            self.known[key] = len(self.tables)
            self.tables.append(np.array([[price[a, b] for b in columns] for a in rows]))
        return self.known[key]

    def finish(self, carried: list[tuple[int, int]], limit: float | None) -> Problem:
        usages = []
        last = [max([self.born[t], *(self.when[n] for n, _ in self.readers[t])]) for t in range(len(self.makers))]
        back = dict(carried)
        for t, (maker, made) in enumerate(self.makers):
            uses = list(self.readers[t])
            if t in back:
                uses.append(self.makers[back[t]])
            holder, places = maker, made
            if len(uses) > 1:
                places = tuple("".join(p) for p in itertools.product("B01P", repeat=self.axes))
                holder = self.node(f"tensor {t}", np.zeros(len(places)))
                self.edges.append(Edge(maker, holder, self.table(made, places, self.bytes[t])))
            for node, wanted in uses:
                self.edges.append(Edge(holder, node, self.table(places, wanted, self.bytes[t])))
            end = self.clock if t in self.kept else last[t]
            usages.append(Usage(holder, self.born[t], end, np.array([self.bytes[t] * self.share(p) for p in places])))
        return Problem(self.costs, self.edges, self.tables, usages, limit, self.names)


def transformer(
    layers: int, mesh: tuple[int, ...], *, batch_tokens: float = 32768, width: int = 4096, limit: float | None = None
) -> Problem:
    """A decoder of `layers` blocks with its backward pass and Adam."""
    b = Builder(mesh)
    act, wide = batch_tokens * width * 2, batch_tokens * width * 3.5 * 2
    carried: list[tuple[int, int]] = []
    weights: list[tuple[int, float, float]] = []
    tape: list = []

    def chain(name: str, x: int, n: int, size: float, rows: tuple[str, ...] = UNARY) -> int:
        for i in range(n):
            (x,) = b.op(f"{name}/{i}", rows, [x], 0, size)
        return x

    def matmul(name: str, x: int, w: int, ratio: float, out: float) -> int:
        flops = 2 * batch_tokens * width * width * ratio
        (y,) = b.op(name, MATMUL, [x, w], flops, out)
        tape.append((name, x, w, ratio, flops))
        return y

    def weight(name: str, ratio: float) -> int:
        w = b.argument(name, width * width * ratio * 2)
        weights.append((w, ratio, 0.0))
        return w

    params = [
        [weight(f"layer_{i}/{n}", r) for n, r in (("qkv", 1.5), ("o", 1), ("up", 7), ("down", 3.5))]
        for i in range(layers)
    ]
    embed, head = weight("embed", 31), weight("head", 31)
    x = chain("embed_in", b.argument("tokens", act), 2, act)
    (x,) = b.op("embed", MATMUL, [x, embed], 1e9, act)
    forward = []
    for i, (qkv, o, up, down) in enumerate(params):
        start = x
        h = chain(f"l{i}/norm1", x, 4, act)
        a = matmul(f"l{i}/qkv", h, qkv, 1.5, act * 1.5)
        q, k = chain(f"l{i}/rope_q", a, 3, act), chain(f"l{i}/rope_k", a, 3, act / 4)
        (s,) = b.op(f"l{i}/scores", BINARY, [q, k], 3e11, act * 2)
        p = chain(f"l{i}/softmax", s, 4, act * 2)
        (c,) = b.op(f"l{i}/context", BINARY, [p, a], 3e11, act)
        y = matmul(f"l{i}/o", c, o, 1, act)
        (x,) = b.op(f"l{i}/add1", ADD, [x, y], 0, act)
        mid = x
        h2 = chain(f"l{i}/norm2", x, 4, act)
        u = matmul(f"l{i}/up", h2, up, 7, wide * 2)
        g = chain(f"l{i}/gelu", u, 4, wide)
        d = matmul(f"l{i}/down", g, down, 3.5, act)
        (x,) = b.op(f"l{i}/add2", ADD, [x, d], 0, act)
        forward.append((start, h, a, q, k, s, p, c, mid, h2, u, g))
    logits = matmul("head", x, head, 31, act * 31)
    dx = chain("loss", logits, 5, act * 31)
    grads: dict[int, int] = {}

    def back(name: str, dy: int, x: int, w: int, ratio: float, size: float) -> int:
        flops = 2 * batch_tokens * width * width * ratio
        (dx,) = b.op(f"{name}/dx", MATMUL, [dy, w], flops, size)
        (grads[w],) = b.op(f"{name}/dw", MATMUL, [x, dy], flops, width * width * ratio * 4)
        return dx

    dx = back("head", dx, x, head, 31, act)
    for i in reversed(range(layers)):
        start, h, a, q, k, s, p, c, mid, h2, u, g = forward[i]
        qkv, o, up, down = params[i]
        dg = back(f"l{i}/down", dx, g, down, 3.5, wide)
        (du,) = b.op(f"l{i}/gelu/t", BINARY, [chain(f"l{i}/gelu/b", dg, 3, wide), u], 0, wide * 2)
        dh = back(f"l{i}/up", du, h2, up, 7, act)
        (dn,) = b.op(f"l{i}/norm2/t", BINARY, [chain(f"l{i}/norm2/b", dh, 3, act, LINEAR), mid], 0, act)
        (dx,) = b.op(f"l{i}/add2/t", ADD, [dx, dn], 0, act)
        dc = back(f"l{i}/o", dx, c, o, 1, act)
        (dp,) = b.op(f"l{i}/context/t", BINARY, [dc, a], 3e11, act * 2)
        (ds,) = b.op(f"l{i}/softmax/t", BINARY, [chain(f"l{i}/softmax/b", dp, 3, act * 2), p], 0, act * 2)
        (dq,) = b.op(f"l{i}/scores/dq", BINARY, [ds, k], 3e11, act)
        (dk,) = b.op(f"l{i}/scores/dk", BINARY, [ds, q], 3e11, act)
        (da,) = b.op(f"l{i}/join", ADD, [dq, dk], 0, act * 1.5)
        dh = back(f"l{i}/qkv", da, h, qkv, 1.5, act)
        (dn,) = b.op(f"l{i}/norm1/t", BINARY, [chain(f"l{i}/norm1/b", dh, 3, act, LINEAR), start], 0, act)
        (dx,) = b.op(f"l{i}/add1/t", ADD, [dx, dn], 0, act)
    (grads[embed],) = b.op("embed/dw", MATMUL, [chain("embed/b", dx, 2, act), dx], 1e9, width * width * 31 * 4)
    kept = set()
    for w, ratio, _ in weights:
        size = width * width * ratio * 4
        mu, nu = b.argument("mu", size), b.argument("nu", size)
        g = chain("clip", grads[w], 3, size, LINEAR)
        new = b.op("adam", UPDATE, [w, mu, nu, g], 0, size / 2, size, size)
        carried += list(zip((w, mu, nu), new, strict=True))
        kept |= {w, mu, nu, *new}
    b.kept = kept
    b.when = when(b)
    return b.finish(carried, limit)


def when(b: Builder) -> dict[int, int]:
    """The moment at which each op runs: that of its first result."""
    moments: dict[int, int] = {}
    for t, (maker, _) in enumerate(b.makers):
        moments.setdefault(maker, b.born[t])
    return moments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 32])
    parser.add_argument("--mesh", action="append", default=[])
    parser.add_argument("--memory", type=float, default=None, help="limit as a share of the unlimited plan's peak")
    args = parser.parse_args()
    for text in args.mesh or ["8", "8x8"]:
        for layers in args.layers:
            mesh = tuple(int(n) for n in text.split("x"))
            began = time.perf_counter()
            problem = transformer(layers, mesh)
            built = time.perf_counter() - began
            limit = None
            if args.memory:
                limit = args.memory * solve(problem).peak_bytes
                problem = transformer(layers, mesh, limit=limit)
            began = time.perf_counter()
            found = solve(problem)
            took = time.perf_counter() - began
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(
                f"{text:6} {layers:3} layers {len(problem.node_seconds):6} nodes: {took:6.2f} s (built in {built:.1f}) "
                f"{found.seconds * 1e3:9.3f} ms, gap {found.seconds / found.bound_seconds - 1:.2e}, "
                f"{found.peak_bytes / 2**30:.1f} GiB of {(limit or 0) / 2**30:.1f}, {found.method}, rss {peak:.2f} GiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
