"""Finds the sums that carry a network's residual stream, whatever its modules are called.

A residual sum adds what a block computed to what the block was given. Both sides have the sum's own shape, and by
elementwise ops alone they cannot be traced back to a common tensor: that tells it from a bias (one side is broadcast)
and from the sum inside a gelu (`x + 0.04 * x**3`, where both sides come from `x`).
"""

from __future__ import annotations

from sbpjax.program.graph import Constant, Graph, Op

_SUMS = frozenset(["add", "add_any"])
_ELEMENTWISE = frozenset(
    "abs add add_any and ceil clamp convert_element_type copy cos div erf erf_inv erfc exp exp2 expm1 floor "
    "integer_pow is_finite log log1p logistic max min mul name ne neg not optimization_barrier or pow real "
    "reduce_precision rsqrt sbp_constrain select_n sign sin sqrt square stop_gradient sub tan tanh xor".split()
)


def residual_sums(graph: Graph) -> frozenset[Op]:
    """The residual sums of a graph and of its loops' bodies, in time linear in their ops."""
    found: set[Op] = set()
    _search(graph, found)
    return frozenset(found)


def _search(graph: Graph, found: set[Op]) -> None:
    # A residual sum is where the next one's tracing ends, which keeps these sets small in deep networks.
    origins: dict[int, frozenset[int]] = {}
    broadcast: set[int] = set()
    for op in graph.ops:
        if op.body is not None:
            _search(op.body, found)
        if len(op.outputs) != 1:
            continue
        (result,) = op.outputs
        shape = graph.tensors[result].shape
        same = [x for x in op.inputs if not isinstance(x, Constant) and graph.tensors[x].shape == shape]
        if op.name == "broadcast_in_dim" or (op.name in _ELEMENTWISE and same and broadcast.issuperset(same)):
            broadcast.add(result)
        if op.name not in _ELEMENTWISE or not same:
            continue
        sides = [origins.get(x, frozenset([x])) for x in same]
        if op.name in _SUMS and len(same) == 2 and broadcast.isdisjoint(same) and sides[0].isdisjoint(sides[1]):
            found.add(op)
            origins[result] = frozenset([result])
        else:
            origins[result] = frozenset().union(*sides)
