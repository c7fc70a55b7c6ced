"""Distinct cost vectors and tables, each known by a number, with memoised arithmetic on the numbers.

Repeated layers use the same few hundred vectors and tables thousands of times. Here each distinct array exists once,
and an operation on it (restricting options, eliminating a node) is carried out once and looked up ever after. So
reductions act on every node of the whole problem, exactly, while their numeric work does not grow with depth.

A table and its transpose have the numbers `2k` and `2k + 1`: `t ^ 1` turns a table around.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
_T = TypeVar("_T")


class Compressed(NamedTuple):
    """A table without its repeated rows and columns: `table[a, b] == distinct[rows[a], columns[b]]`."""

    rows: Indices
    columns: Indices
    distinct: Floats


class Pool:
    """Interned vectors `(options,)`, tables `(options, options)` and usages `(memory rows, options)`."""

    def __init__(self) -> None:
        self._arrays: list[Floats] = []
        self._known: dict[tuple[tuple[int, ...], bytes], int] = {}
        self._memo: dict[tuple, object] = {}

    def vector(self, values: Floats) -> int:
        """The number of a vector."""
        return self._intern(values)

    def usage(self, values: Floats) -> int:
        """The number of a node's bytes, one row a memory row."""
        return self._intern(values)

    def table(self, values: Floats) -> int:
        """The number of a table."""
        return 2 * self._intern(values)

    def _intern(self, values: Floats) -> int:
        values = np.ascontiguousarray(values, dtype=np.float64) + 0.0  # no negative zeros, and a copy of our own
        key = (values.shape, hashlib.blake2b(values.data, digest_size=16).digest())
        if key not in self._known:
            self._known[key] = len(self._arrays)
            values.setflags(write=False)
            self._arrays.append(values)
        return self._known[key]

    def values(self, vector: int) -> Floats:
        """The array of a vector or usage."""
        return self._arrays[vector]

    def entries(self, table: int) -> Floats:
        """The array of a table."""
        stored = self._arrays[table >> 1]
        return stored.T if table & 1 else stored

    def _once(self, key: tuple, make: Callable[[], _T]) -> _T:
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]  # type: ignore[return-value]

    # Arithmetic that makes new arrays.

    def kept(self, vector: int, keep: Indices) -> int:
        """A vector or usage restricted to the options `keep`."""
        return self._once(("kept", vector, keep.tobytes()), lambda: self._intern(self.values(vector)[..., keep]))

    def rows_kept(self, table: int, keep: Indices) -> int:
        """A table restricted to the rows `keep`, which may repeat."""
        return self._once(("rows", table, keep.tobytes()), lambda: self.table(self.entries(table)[keep]))

    def sum(self, first: int, second: int) -> int:
        """The sum of two vectors or usages."""
        key = (min(first, second), max(first, second))
        return self._once(("sum", *key), lambda: self._intern(self.values(first) + self.values(second)))

    def table_sum(self, first: int, second: int) -> int:
        """The sum of two tables."""
        key = (min(first, second), max(first, second))
        return self._once(("table_sum", *key), lambda: self.table(self.entries(first) + self.entries(second)))

    def scaled(self, table: int, weight: float) -> int:
        """A table with all entries times `weight`; what is forbidden stays so, whatever the weight."""
        if weight == 1:
            return table
        return self._once(("scaled", table, weight), lambda: self._scaled(table, weight))

    def _scaled(self, table: int, weight: float) -> int:
        entries = self.entries(table)
        finite = np.isfinite(entries)
        return self.table(np.where(finite, np.where(finite, entries, 0.0) * weight, np.inf))

    def row(self, table: int, index: int) -> int:
        """One row of a table, as a vector."""
        return self._once(("row", table, index), lambda: self.vector(self.entries(table)[index]))

    def leaf(self, table: int, vector: int) -> int:
        """The cheapest answer of a leaf (columns, costs `vector`) to each option of its neighbour (rows)."""
        return self._once(
            ("leaf", table, vector), lambda: self.vector((self.entries(table) + self.values(vector)).min(axis=1))
        )

    def leaf_choice(self, table: int, vector: int) -> Indices:
        """The leaf's option behind each entry of `leaf`."""
        return self._once(
            ("leaf_choice", table, vector), lambda: (self.entries(table) + self.values(vector)).argmin(axis=1)
        )

    def through(self, first: int, vector: int, second: int) -> int:
        """The table between the outer ends of two tables that meet in a node with costs `vector` (min-plus)."""
        return self._once(("through", first, vector, second), lambda: self._through(first, vector, second))

    def _through(self, first: int, vector: int, second: int) -> int:
        left, right = self.compressed(first), self.compressed(second)
        near = (left.distinct[:, left.columns] + self.values(vector)).T
        far = right.distinct[right.rows]
        best = np.full((near.shape[1], far.shape[1]), np.inf)
        for a, b in zip(near, far, strict=True):
            np.minimum(best, a[:, None] + b, out=best)
        return self.table(best[np.ix_(left.rows, right.columns)])

    # Facts about arrays.

    def possible(self, table: int) -> NDArray[np.bool_]:
        """For each row, whether some entry of it is finite."""
        return self._once(("possible", table), lambda: np.asarray(np.isfinite(self.entries(table)).any(axis=1)))

    def function(self, table: int) -> Indices | None:
        """For each row, its only finite column; None where some row has several."""
        return self._once(("function", table), lambda: self._function(table))

    def _function(self, table: int) -> Indices | None:
        finite = np.isfinite(self.entries(table))
        return finite.argmax(axis=1) if (finite.sum(axis=1) == 1).all() else None

    def compressed(self, table: int) -> Compressed:
        """The table without repeated rows and columns."""
        if table & 1:
            rows, columns, distinct = self.compressed(table ^ 1)
            return Compressed(columns, rows, distinct.T)
        return self._once(("compressed", table), lambda: _compress(self.entries(table)))

    def extent(self, table: int) -> int:
        """How many distinct finite entries a linear relaxation has to carry for the table."""
        return self._once(("extent", table >> 1), lambda: int(np.isfinite(self.compressed(table & ~1).distinct).sum()))

    def regret(self, table: int) -> tuple[Indices, Floats]:
        """`(rows, worst)`: `worst[rows[a], rows[b]]` is the most that row a exceeds row b by, in any column."""
        return self._once(("regret", table), lambda: _regret(self.compressed(table)))


def _compress(entries: Floats) -> Compressed:
    rows, first_rows = _distinct(entries)
    entries = entries[first_rows]
    columns, first_columns = _distinct(entries.T)
    return Compressed(rows, columns, np.ascontiguousarray(entries[:, first_columns]))


def _distinct(entries: Floats) -> tuple[Indices, list[int]]:
    """For each row the number of its distinct value, and where each value comes first."""
    seen: dict[bytes, int] = {}
    first: list[int] = []
    index = np.empty(len(entries), dtype=np.intp)
    for i, row in enumerate(np.ascontiguousarray(entries)):
        key = row.tobytes()
        if key not in seen:
            seen[key] = len(first)
            first.append(i)
        index[i] = seen[key]
    return index, first


def _regret(compressed: Compressed) -> tuple[Indices, Floats]:
    distinct = compressed.distinct
    worst = np.empty((len(distinct), len(distinct)))
    with np.errstate(invalid="ignore"):  # inf - inf: a column that both rows forbid is no reason for either
        for a, row in enumerate(distinct):
            worst[a] = np.fmax.reduce(row - distinct, axis=1, initial=-np.inf)
    return compressed.rows, worst
