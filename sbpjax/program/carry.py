"""Which arguments a function carries: those whose tree, shapes and dtypes come back in its result.

The largest match wins. An argument is compared as a whole with every subtree of the result, the first one that fits and
is still free is its next value. An argument that does not come back whole is searched for the containers within it. A
single array counts only as an argument of its own and only from rank 1 on: a learning rate is not carried into a loss.
Weak types do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Subtree:
    """A part of a larger pytree: its structure and the position of its first leaf."""

    tree: Any
    first: int

    @property
    def leaves(self) -> range:
        """Positions of its leaves."""
        return range(self.first, self.first + self.tree.num_leaves)

    @property
    def is_leaf(self) -> bool:
        """Whether it is one array, not a container."""
        return self.tree.num_leaves == 1 and not self.tree.children()

    def children(self) -> Iterator[Subtree]:
        """Its parts, one level down."""
        first = self.first
        for child in self.tree.children():
            yield Subtree(child, first)
            first += child.num_leaves

    def walk(self) -> Iterator[Subtree]:
        """It and all within, from the outside in."""
        yield self
        for child in self.children():
            yield from child.walk()


def carried(
    arguments: Sequence[Subtree],
    argument_avals: Sequence[Any],
    result: Subtree,
    result_avals: Sequence[Any],
    may_carry_array: Callable[[int], bool] = lambda position: True,
) -> dict[int, int]:
    """For each carried argument leaf, the position of its next value among the result's leaves.

    Args:
        arguments: the arguments, in order.
        argument_avals: shape and dtype of each leaf of all arguments.
        result: the result.
        result_avals: shape and dtype of each of its leaves.
        may_carry_array: whether a result leaf may be the next value of an argument that is a single array.
    """

    def shapes(subtree: Subtree, avals: Sequence[Any]) -> tuple[Any, ...]:
        return tuple((avals[i].shape, avals[i].dtype) for i in subtree.leaves)

    free: dict[tuple[Any, ...], list[Subtree]] = {}
    for subtree in result.walk():
        free.setdefault(shapes(subtree, result_avals), []).append(subtree)
    found: dict[int, int] = {}
    taken: set[int] = set()

    def take(argument: Subtree, allowed: Callable[[int], bool] = lambda position: True) -> bool:
        candidates = free.get(shapes(argument, argument_avals), [])
        for i, candidate in enumerate(candidates):
            fits = candidate.tree == argument.tree and allowed(candidate.first)
            if fits and taken.isdisjoint(candidate.leaves):
                del candidates[i]
                taken.update(candidate.leaves)
                found.update(zip(argument.leaves, candidate.leaves, strict=True))
                return True
        return False

    def take_containers(argument: Subtree) -> None:
        if not argument.leaves or argument.is_leaf or take(argument):
            return
        for child in argument.children():
            take_containers(child)

    for argument in arguments:
        take_containers(argument)
    for argument in arguments:
        if argument.is_leaf and argument_avals[argument.first].shape:
            take(argument, may_carry_array)
    return found
