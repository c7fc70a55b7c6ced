"""What no emitted step can have, told when it is planned: with the line in the user's code, and what to do."""

from __future__ import annotations

from itertools import chain

from sbpjax.errors import InvalidStrategy, NotTraceable
from sbpjax.program.graph import Op
from sbpjax.program.nested import equations
from sbpjax.sbp import B, MeshShape, mesh_size


def refuse(op: Op, mesh: MeshShape) -> None:
    """Refuse an op that no layout on the mesh makes right, also where it stands inside of a `cond` or a `while`.

    Raises:
        NotTraceable: a `shard_map` of the user's; an ordered effect on several devices.
        InvalidStrategy: a pin inside of what every device computes whole.
    """
    inner = [(eqn.primitive.name, eqn.params) for eqn in equations(op.params)]
    for name, params in chain([(op.name, op.params)], inner):
        if name == "shard_map":
            raise NotTraceable(
                f"the step has a shard_map of its own at {op.source}: sbpjax lays out the whole step and cannot yet "
                "look into one. Write the part for one device, and pin what matters with sbpjax.constrain"
            )
        if _is_ordered(params) and mesh_size(mesh) > 1:
            raise NotTraceable(
                f"{name} at {op.source} is ordered: JAX cannot keep the order of effects on the {mesh_size(mesh)} "
                "devices of a mesh. Leave ordered=True out, or return the value and use it outside of the step"
            )
    for name, params in inner:
        pins = params["pins"] if name == "sbp_constrain" and params["strict"] else ()
        if asked := [f"{axis}={sbp}" for axis, sbp in pins if sbp != B and mesh.get(axis, 1) > 1]:
            raise InvalidStrategy(
                f"constrain({', '.join(asked)}) inside of the {op.name} at {op.source} cannot hold: every device "
                "computes that op whole. Pin what goes in or comes out, or use lax.scan or jnp.where instead"
            )


def _is_ordered(params: object) -> bool:
    """Whether these are the parameters of an ordered callback; some keep it in their effect."""
    if not isinstance(params, dict):
        return False
    return params.get("ordered") is True or "Ordered" in type(params.get("effect")).__name__
