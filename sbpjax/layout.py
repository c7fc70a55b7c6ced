"""A layout: which placement every tensor has, and which boxings lie between, for one graph on one mesh.

It is what search decides and what emit carries out. Each tensor comes in *versions*: version 0 is the tensor as its op
(or the caller) makes it; each further version is boxed from an earlier one. Every use of a tensor names a version, so a
boxing that several ops share happens once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sbpjax.rules.rule import Signature
from sbpjax.sbp import MeshShape, Placement


@dataclass(frozen=True, slots=True)
class Version:
    """A tensor in one placement.

    Attributes:
        placement: its nd-SBP.
        parent: the version that it is boxed from; None for version 0.
    """

    placement: Placement
    parent: int | None = None


@dataclass(frozen=True, eq=False)
class BodyLayout:
    """The layout of one graph: the whole program's or a loop body's.

    Attributes:
        versions: for each tensor of the graph, its versions; a parent always comes before its child.
        signatures: for each op, the placements it works on. A `scan` has the placements of its operands and results;
            its carried operands and results agree.
        uses: for each op, the version of each operand (0 and meaningless for constants, which are broadcast and go
            straight to what the signature asks).
        results: for each graph output, its version.
        result_placements: for each graph output, the placement it is returned in (also for constants).
        bodies: for each `scan` (index of op), the layout of its body. Body inputs have, as version 0, the placement
            that the scan's signature gives them (scanned operands without their leading dimension); body results end
            in the placement of the carry, or of the stacked result without its leading dimension.
    """

    versions: tuple[tuple[Version, ...], ...]
    signatures: tuple[Signature, ...]
    uses: tuple[tuple[int, ...], ...]
    results: tuple[int, ...]
    result_placements: tuple[Placement, ...]
    bodies: Mapping[int, BodyLayout] = field(default_factory=dict)

    def at(self, path: Sequence[int]) -> BodyLayout:
        """The layout of the loop body at a path of scans, outermost first; this one for the empty path."""
        return self.bodies[path[0]].at(path[1:]) if path else self

    def boxed(self, tensor: int, version: int) -> tuple[Placement, Placement]:
        """From which placement to which a version (not version 0) is boxed."""
        made = self.versions[tensor][version]
        if made.parent is None:
            raise ValueError(f"version {version} of tensor {tensor} is not boxed from another")
        return self.versions[tensor][made.parent].placement, made.placement


@dataclass(frozen=True, eq=False)
class Layout:
    """The answer for a whole program on one mesh.

    Attributes:
        mesh: axis sizes, major to minor.
        inputs: the placement of each graph input at rest: never partial, always dividing.
        outputs: the placement of each result at rest.
        body: all the rest.
        compiler_options: XLA options under which the layout was judged, carried by the emitted program.
    """

    mesh: MeshShape
    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    body: BodyLayout
    compiler_options: Mapping[str, str | int | bool] = field(default_factory=dict)


def scope_name(path: tuple[int, ...], tensor: int, version: int) -> str:
    """The named scope under which a boxing is emitted, and by which it is found again in the compiled program.

    `path` are the indices of the scans, outermost first, in whose bodies the tensor lives.
    """
    return ".".join(["sbp", *(f"o{op}" for op in path), f"t{tensor}", f"v{version}"])
