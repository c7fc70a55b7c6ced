"""What each op of a program may do on a mesh: its rule, its signatures, its traffic; loop bodies included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from sbpjax.cost.compute import Traffic, materialised, traffic
from sbpjax.formulate.refusals import refuse
from sbpjax.formulate.restricted import LoopPins, loop_pins, restricted
from sbpjax.program.graph import Constant, Graph, Op
from sbpjax.rules.registry import rule_of
from sbpjax.rules.rule import Rule, Signature
from sbpjax.rules.signatures import replicated, signatures
from sbpjax.sbp import COMBINE_OPS, B, CombineOp, MeshShape, Placement, S, Sbp
from sbpjax.strategy.restrictions import Allowed, Relaxed, Restrictions

Partial = tuple[str, CombineOp | None]
"""A mesh axis, and by what a tensor that is partial over it combines."""

NONE_ARRIVES: Mapping[int, frozenset[Partial]] = {}


@dataclass(frozen=True, eq=False)
class OpOptions:
    """What one op may do.

    Attributes:
        rule: its rule, or None: then it runs whole on every device.
        signatures: the options, at least one. For a `scan` there is none: its body decides.
        moves: which of its operands and results go through memory.
        body: the options of a scan's body.
        pins: on what a scan returns.
    """

    rule: Rule | None
    signatures: tuple[Signature, ...]
    moves: Traffic
    body: GraphOptions | None = None
    pins: LoopPins | None = None


@dataclass(frozen=True, eq=False)
class GraphOptions:
    """The options of all ops of one graph.

    Attributes:
        graph: the graph.
        ops: one for each op.
        in_memory: for each tensor, whether it goes through memory.
        relaxed: where the strategy gave way, loop bodies included.
    """

    graph: Graph
    ops: tuple[OpOptions, ...]
    in_memory: tuple[bool, ...]
    relaxed: tuple[Relaxed, ...] = ()


def graph_options(
    graph: Graph,
    mesh: MeshShape,
    restrictions: Restrictions,
    arriving: Mapping[int, frozenset[Partial]] = NONE_ARRIVES,
) -> GraphOptions:
    """Rules and signatures of every op of the graph on the mesh, restricted by the strategy and by `constrain` pins.

    Args:
        graph: the program's, or a loop's body.
        mesh: axis sizes.
        restrictions: the strategy's.
        arriving: for graph inputs, what they may be partial over when they come in.

    Raises:
        InvalidStrategy: a pin that an op cannot keep.
        NotTraceable: an op that no emitted step can have.
    """
    kept = [False] * len(graph.tensors)
    for t in (*graph.inputs, *(t for t in graph.outputs if not isinstance(t, Constant))):
        kept[t] = True
    rules = [
        None
        if op.body is not None
        else rule_of(op, [graph.aval(x) for x in op.inputs], [graph.tensors[t].aval for t in op.outputs])
        for op in graph.ops
    ]
    in_memory = materialised(graph, rules, kept)
    partial = dict(arriving)
    options: list[OpOptions] = []
    relaxed: list[Relaxed] = []
    for op, rule in zip(graph.ops, rules, strict=True):
        refuse(op, mesh)
        moves = traffic(op, in_memory)
        if op.body is not None:
            body = graph_options(op.body, mesh, restrictions, _carried(op, mesh))
            options.append(OpOptions(None, (), moves, body, loop_pins(op, graph, restrictions)))
            relaxed += body.relaxed
            partial.update(dict.fromkeys(op.outputs, _any_partial(mesh)))
            continue
        operand_shapes = [tuple(graph.aval(x).shape) for x in op.inputs]
        result_shapes = [graph.tensors[t].shape for t in op.outputs]
        if rule is None:
            found: Sequence[Signature] = (
                replicated([graph.aval(x) for x in op.inputs], [graph.tensors[t].aval for t in op.outputs]),
            )
        else:
            found = signatures(rule, mesh, operand_shapes, result_shapes)
        found = [s for s in found if _worth_while(s, op, partial)]
        for k, t in enumerate(op.outputs):
            partial[t] = frozenset((axis, s.results[k].op) for s in found for axis in s.results[k].partial)
        found = restricted(op, graph, found, mesh, restrictions, relaxed)
        options.append(OpOptions(rule, tuple(found), moves))
    return GraphOptions(graph, tuple(options), tuple(in_memory), tuple(dict.fromkeys(relaxed)))


def _worth_while(signature: Signature, op: Op, partial: Mapping[int, frozenset[Partial]]) -> bool:
    """Whether each partial operand, or one that it is added to, can be partial anyway.

    Making a whole tensor partial only to pass it through and reduce it later gains nothing.
    """
    asked: set[Partial] = set()
    there: set[Partial] = set()
    for operand, placement in zip(op.inputs, signature.operands, strict=True):
        wanted: set[Partial] = {(axis, placement.op) for axis in placement.partial}
        asked |= wanted
        if isinstance(operand, int):
            there |= wanted & partial.get(operand, frozenset())
    return asked == there


def _carried(op: Op, mesh: MeshShape) -> Mapping[int, frozenset[Partial]]:
    """The carry of a scan may be partial: gradients may be summed over the trips before they are reduced."""
    assert op.body is not None
    consts, carry = op.params["num_consts"], op.params["num_carry"]
    return dict.fromkeys(op.body.inputs[consts : consts + carry], _any_partial(mesh))


def _any_partial(mesh: MeshShape) -> frozenset[Partial]:
    return frozenset(product(mesh, COMBINE_OPS))


def placements_at_rest(shape: Sequence[int], mesh: MeshShape, allowed: Allowed, splittable: bool) -> list[Placement]:
    """Placements that an argument or result of this shape may have: dividing, never partial. The first is B if allowed.

    Axes that split the same dimension do so in mesh order. An array of no elements lies whole: there is nothing to
    split, and JAX (0.10.2) cannot read such an array back from its parts.
    """
    choices: list[list[Sbp]] = []
    rank = len(shape)
    splittable = splittable and 0 not in shape
    for axis, size in mesh.items():
        every: list[Sbp] = [B, *(S(d) for d in range(rank) if splittable and shape[d] % size == 0)]
        choices.append([c for c in every if axis not in allowed or c in allowed[axis]])
    placements = (Placement.of(rank, dict(zip(mesh, combination, strict=True))) for combination in product(*choices))
    return [p for p in placements if p.divides(shape, mesh)]
