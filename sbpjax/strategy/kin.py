"""How the leaves of a program belong together: stacks of scanned layers, biases and kernels, optimizer state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sbpjax.program.graph import Constant, Graph
from sbpjax.program.program import Leaf, Program

KERNEL_NAMES = ("kernel", "weight", "w", "embedding")
_SAME_LAYERS = frozenset(["convert_element_type", "copy", "copy_p", "optimization_barrier", "sbp_constrain"])


@dataclass(frozen=True)
class Kin:
    """Relations between leaves, by their index.

    Attributes:
        shapes: each leaf's global shape.
        stacked: how many leading dimensions of each leaf a scan takes apart.
        kernel: for a leaf of a layer, that layer's kernel: a parameter beside it whose last dimensions it shares.
        parameter: for a leaf that is no parameter, the parameter whose path it repeats (`opt_state.0.mu.dense.kernel`)
            and whose shape it has.
    """

    shapes: tuple[tuple[int, ...], ...]
    stacked: tuple[int, ...]
    kernel: tuple[int | None, ...]
    parameter: tuple[int | None, ...]


def kin(program: Program) -> Kin:
    """Find the relations in one pass over the graph and one over the paths."""
    graph = program.graph
    shapes = tuple(graph.tensors[t].shape for t in graph.inputs)
    stacked = list(_stacked(graph))
    parameter = _parameters(program.leaves, shapes)
    for i, p in enumerate(parameter):
        if p is not None:  # an optimizer reads the stack whole; it is one all the same
            stacked[i] = stacked[p]
    return Kin(shapes, tuple(stacked), _kernels(program.leaves, shapes, stacked), parameter)


def _stacked(graph: Graph) -> list[int]:
    """For each graph input, how many nested scans take it apart along its leading dimension."""
    depth = [0] * len(graph.tensors)
    for op in reversed(graph.ops):
        if op.body is not None:
            first_scanned = op.params["num_consts"] + op.params["num_carry"]
            inner = _stacked(op.body)
            for k, operand in enumerate(op.inputs):
                if isinstance(operand, Constant):
                    continue
                if k >= first_scanned:
                    depth[operand] = max(depth[operand], 1 + inner[k])
                elif k < op.params["num_consts"]:
                    depth[operand] = max(depth[operand], inner[k])
        elif op.name in _SAME_LAYERS and not isinstance(op.inputs[0], Constant):
            depth[op.inputs[0]] = max(depth[op.inputs[0]], depth[op.outputs[0]])
    return [depth[t] for t in graph.inputs]


def _parameters(leaves: Sequence[Leaf], shapes: Sequence[tuple[int, ...]]) -> tuple[int | None, ...]:
    by_ending: dict[tuple[tuple[int, ...], tuple[str, ...]], int] = {}
    for i, leaf in enumerate(leaves):
        if leaf.role == "parameter":
            parts = tuple(leaf.path.split("."))
            for start in range(len(parts)):
                by_ending.setdefault((shapes[i], parts[start:]), i)
    return tuple(
        None if leaf.role in ("parameter", "batch") else _longest_ending(leaf.path, shape, by_ending)
        for leaf, shape in zip(leaves, shapes, strict=True)
    )


def _longest_ending(
    path: str, shape: tuple[int, ...], by_ending: dict[tuple[tuple[int, ...], tuple[str, ...]], int]
) -> int | None:
    parts = tuple(path.split("."))
    for start in range(len(parts)):
        if (found := by_ending.get((shape, parts[start:]))) is not None:
            return found
    return None


def _kernels(
    leaves: Sequence[Leaf], shapes: Sequence[tuple[int, ...]], stacked: Sequence[int]
) -> tuple[int | None, ...]:
    layers: dict[str, list[int]] = defaultdict(list)
    for i, leaf in enumerate(leaves):
        if leaf.role == "parameter":
            layers[leaf.path.rpartition(".")[0]].append(i)
    kernels: list[int | None] = [None] * len(leaves)
    for members in layers.values():
        for i in members:
            own = shapes[i][stacked[i] :]
            wider = [j for j in members if _ends_with(shapes[j][stacked[j] :], own) and stacked[j] == stacked[i]]
            kernels[i] = min(wider, key=lambda j: _kernel_rank(leaves[j].path), default=None)
    return tuple(kernels)


def _ends_with(shape: tuple[int, ...], ending: tuple[int, ...]) -> bool:
    return 0 < len(ending) < len(shape) and shape[len(shape) - len(ending) :] == ending


def _kernel_rank(path: str) -> int:
    name = path.rpartition(".")[2]
    return KERNEL_NAMES.index(name) if name in KERNEL_NAMES else len(KERNEL_NAMES)
