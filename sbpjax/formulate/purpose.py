"""What the boxing of a tensor is for, which decides how much of it hides behind compute (`cost.exposure`).

A parameter is still one when it has been converted or reshaped; a gradient is one from the op that makes it to the
update, through conversions and sums.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from sbpjax.cost.exposure import Purpose
from sbpjax.program.graph import Graph, Op, Phase

SUMS = frozenset({"add", "add_any"})


@dataclass(frozen=True, eq=False)
class Purposes:
    """The tensors of one graph by what they are; activations are the rest.

    Attributes:
        parameters: state as the caller gave it, under whatever form the model reads it.
        gradients: what goes to the update and nowhere else.
        updated: what the update makes.
    """

    parameters: frozenset[int]
    gradients: frozenset[int]
    updated: frozenset[int]

    def of(self, tensor: int, phases: Collection[Phase]) -> Purpose:
        """What boxing a tensor for readers in some phases is for."""
        if set(phases) == {"update"}:
            return "result" if tensor in self.updated else "gradient"
        if tensor in self.gradients:
            return "gradient"
        return "parameter" if tensor in self.parameters else "activation"


def purposes(graph: Graph, parameters: Collection[int], gradient_results: Collection[int]) -> Purposes:
    """Sort the tensors of a graph.

    Args:
        graph: the program's, or a loop's body.
        parameters: the inputs that are state.
        gradient_results: positions of the results that are gradients (of a loop's body).
    """
    as_parameters = set(parameters)
    updated = set()
    for op in graph.ops:
        if op.source.phase == "update":
            updated.update(op.outputs)
        elif (read := _renamed(graph, op)) is not None and as_parameters.issuperset(read):
            as_parameters.update(op.outputs)
    returned = {t: r for r, t in enumerate(graph.outputs) if isinstance(t, int)}
    gradients: set[int] = set()
    readers = graph.readers()
    for op in reversed(graph.ops):
        for t in op.outputs:
            ends = [_ends_in_update(graph, graph.ops[i], gradients) for i, _ in readers[t]]
            if t in returned:
                ends.append(returned[t] in gradient_results)
            if ends and all(ends):
                gradients.add(t)
    return Purposes(frozenset(as_parameters), frozenset(gradients), frozenset(updated))


def _ends_in_update(graph: Graph, reader: Op, gradients: Collection[int]) -> bool:
    if reader.source.phase == "update":
        return True
    return _renamed(graph, reader) is not None and all(t in gradients for t in reader.outputs)


def _renamed(graph: Graph, op: Op) -> list[int] | None:
    """What an op reads if it makes of it the same value in another form, or a sum of like values; else None."""
    read = [x for x in op.inputs if isinstance(x, int)]
    if op.body is not None or not read or not (len(read) == 1 or op.name in SUMS):
        return None
    size = math.prod(graph.tensors[read[0]].shape)
    return read if all(math.prod(graph.tensors[t].shape) == size for t in op.outputs) else None
