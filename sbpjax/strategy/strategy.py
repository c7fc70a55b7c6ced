"""A strategy: loaded from YAML, combined with those it extends, and asked for a mesh and for restrictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sbpjax.cluster import Cluster
from sbpjax.errors import InvalidMesh, InvalidStrategy, UnknownName
from sbpjax.program.program import Program
from sbpjax.sbp import KNOWN_AXES, MeshShape, mesh_size
from sbpjax.strategy.document import Document, read
from sbpjax.strategy.pattern import compiled
from sbpjax.strategy.resolve import restrict
from sbpjax.strategy.restrictions import Restrictions
from sbpjax.strategy.rules import Pin, Rule
from sbpjax.strategy.schema import Description, ModulePin, PathPin, Roles, complaints, validate

MeshSizes = Mapping[str, int | str]
"""Axis to a number of devices, or `rest`, `nodes`, `per_node`, `per_node/2`."""


@dataclass(frozen=True, eq=False)
class Strategy:
    """What the search may choose from, for any program.

    Attributes:
        name: `fsdp`, or the name that its file gives itself.
        description: one line.
        mesh_sizes: the mesh that it asks for; None leaves the mesh to the planner.
        roles: for each role its rules; the first that holds and speaks of an axis decides that axis.
        pins: they beat rules; the first that matches and speaks of an axis decides it.
        written: the strategy as a dict, what it extends written out.
    """

    name: str
    description: str
    mesh_sizes: MeshSizes | None
    roles: Mapping[str, tuple[Rule, ...]]
    pins: tuple[Pin, ...]
    written: Mapping[str, Any]

    @classmethod
    def load(cls, source: str | Path | Mapping[str, Any] | Strategy) -> Strategy:
        """Load a shipped strategy by name, a user's by path (`.yaml`), or one given as a dict.

        Raises:
            UnknownName: there is no such strategy.
            InvalidStrategy: it cannot be read; with file, line and key.
        """
        if isinstance(source, Strategy):
            return source
        if isinstance(source, Mapping):
            return _build(Document("strategy", dict(source)), ())
        if not isinstance(source, str | Path):
            raise InvalidStrategy(f"strategy={source!r}: give a name such as fsdp, the path of a YAML file, or a dict")
        return _load_file(_find(source, Path(), ""), ())

    def mesh(self, cluster: Cluster) -> dict[str, int] | None:
        """The mesh that the strategy asks for on a cluster; None leaves it to the planner.

        `data`, `model`, `sequence` and `expert` are left out where they would have size 1.

        Raises:
            InvalidMesh: its axes do not make up the cluster.
        """
        if self.mesh_sizes is None:
            return None
        per_node = cluster.levels[-1].size
        named = {"nodes": cluster.size // per_node, "per_node": per_node}
        sizes: dict[str, int] = {}
        rest = None
        for axis, size in self.mesh_sizes.items():
            if size in (-1, "rest"):
                rest, sizes[axis] = axis, 1
            elif isinstance(size, int):
                sizes[axis] = size
            else:
                word, _, parts = size.partition("/")
                sizes[axis] = max(1, named[word] // int(parts or 1))
        taken = mesh_size(sizes)
        if cluster.size % taken or (rest is None and cluster.size != taken):
            raise InvalidMesh(
                f"strategy {self.name}: its mesh {dict(self.mesh_sizes)} makes {taken} of the {cluster.size} devices "
                f"of {cluster.name}; give mesh= explicitly, or `rest` for one axis"
            )
        if rest is not None:
            sizes[rest] = cluster.size // taken
        shown = {axis: size for axis, size in sizes.items() if size > 1 or axis not in KNOWN_AXES}
        return shown or dict(list(sizes.items())[-1:])

    def restrict(self, program: Program, mesh: MeshShape) -> Restrictions:
        """What the search may choose from, for one program on one mesh.

        Raises:
            UnknownName: the strategy speaks of an axis that the mesh lacks.
            InvalidStrategy: a pin cannot hold, or matches nothing.
        """
        return restrict(program, mesh, self.roles, self.pins)

    def to_dict(self) -> dict[str, Any]:
        """A dict that `load` reads back, complete in itself: what it extends is written out."""
        return dict(self.written)


def shipped() -> dict[str, Path]:
    """The strategies that come with sbpjax, by name."""
    package = Path(__file__).parents[1]
    # A wheel carries them inside the package; a checkout has them beside it.
    folder = next(f for f in (package / "strategies", package.parent / "strategies") if (f / "auto.yaml").is_file())
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def _find(name: str | Path, folder: Path, origin: str) -> Path:
    known = shipped()
    if str(name) in known:
        return known[str(name)]
    path = folder / name
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return path
    remedy = f"A file needs the ending .yaml and must exist{f' ({origin})' if origin else ''}."
    raise UnknownName.among("strategy", str(name), known, remedy)


def _load_file(path: Path, extending: tuple[Path, ...]) -> Strategy:
    path = path.resolve()
    if path in extending:
        chain = " extends ".join(p.name for p in (*extending[extending.index(path) :], path))
        raise InvalidStrategy(f"{path}: a strategy cannot extend itself: {chain}")
    return _build(read(path), (*extending, path))


def _build(document: Document, extending: tuple[Path, ...]) -> Strategy:
    form = validate(document)
    parents = [_parent(document, k, extended, extending) for k, extended in enumerate(form.extends)]
    roles = {role: _rules(document, role, getattr(form.roles, role)) for role in Roles.model_fields}
    pins = _pins(document, form)
    name = form.name or Path(document.file).stem
    return Strategy(
        name=name,
        description=form.description,
        mesh_sizes=form.mesh if form.mesh is not None else next((p.mesh_sizes for p in parents if p.mesh_sizes), None),
        roles={role: (*rules, *(r for p in parents for r in p.roles[role])) for role, rules in roles.items()},
        pins=(*pins, *(pin for p in parents for pin in p.pins)),
        written=_written(name, form, parents, roles, pins),
    )


def _parent(document: Document, k: int, extended: str | dict[str, Any], extending: tuple[Path, ...]) -> Strategy:
    if isinstance(extended, str):
        return _load_file(_find(extended, document.folder, document.where(("extends", k))), extending)
    return _build(document.part(("extends", k)), extending)


def _rules(document: Document, role: str, forms: Sequence[Any]) -> tuple[Rule, ...]:
    ours = Path(document.file) in {path.resolve() for path in shipped().values()}
    return tuple(Rule(form, document.where(("roles", role, k)), ours) for k, form in enumerate(forms))


def _pins(document: Document, form: Description) -> tuple[Pin, ...]:
    pins = []
    for key, value in form.pins.items():
        pattern = key.removeprefix("module:").strip()
        is_module = key.startswith("module:")
        where = document.where(("pins", key))
        try:
            compiled(pattern, "/" if is_module else ".")
            pins.append(Pin(pattern, (ModulePin if is_module else PathPin).model_validate(value), where))
        except ValidationError as error:
            raise InvalidStrategy("\n".join(complaints(document, error, ("pins", key)))) from None
        except ValueError as error:
            raise InvalidStrategy(f"{where}: {error}") from None
    return tuple(pins)


def _written(
    name: str,
    form: Description,
    parents: Sequence[Strategy],
    roles: Mapping[str, Sequence[Rule]],
    pins: Sequence[Pin],
) -> dict[str, Any]:
    parts = {
        "description": form.description,
        "extends": [parent.to_dict() for parent in parents],
        "mesh": form.mesh,
        "roles": {role: [rule.form.plain() for rule in rules] for role, rules in roles.items() if rules},
        "pins": {pin.key: pin.form.plain() for pin in pins},
    }
    return {"name": name, **{key: part for key, part in parts.items() if part}}
