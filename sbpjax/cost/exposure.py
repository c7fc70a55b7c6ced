"""How much of a collective's time a step feels: its exposed share.

The search's objective is a sum, so overlap enters as a fixed share of each boxing, by what is boxed and which links it
crosses. The shares are what XLA's own schedules of Llama-sized steps showed: gathers of parameters and reductions of
gradients inside a node mostly hide behind the compute of other layers, moves of activations stand between an op and
the next, and across nodes most of anything is exposed.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from sbpjax.cluster import Links

Purpose: TypeAlias = Literal["parameter", "gradient", "activation", "result"]
"""What a boxing is for: gathering a parameter for an op; reducing or moving a gradient on its way to the update; moving
an activation; bringing an updated value to the placement in which it is returned."""

INSIDE_NODE: Final[dict[Purpose, float]] = {"parameter": 0.2, "gradient": 0.2, "activation": 0.65, "result": 1.0}
ACROSS_NODES: Final[dict[Purpose, float]] = {"parameter": 0.8, "gradient": 0.8, "activation": 0.95, "result": 1.0}


def exposed_share(purpose: Purpose, axes: tuple[str, ...], links: Links) -> float:
    """The share of a collective over `axes` that is not hidden."""
    return (ACROSS_NODES if links.crosses_nodes(axes) else INSIDE_NODE)[purpose]
