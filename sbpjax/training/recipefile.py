"""Recipes as files: found by name or path, overridden by `key=value`, refused with the key, the line and a remedy."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from sbpjax.cluster import Cluster
from sbpjax.errors import InvalidRecipe, SbpjaxError, UnknownName
from sbpjax.files import why_not_writable
from sbpjax.strategy import Strategy
from sbpjax.training.recipe import Recipe

SHIPPED: Final = Path(__file__).parent / "recipes"

Key = tuple[str | int, ...]


@dataclass(frozen=True)
class _Source:
    """What was written, and where each key was written."""

    data: dict[str, Any]
    places: Mapping[Key, str]

    def place(self, key: Key) -> str:
        """Where a key, or else the innermost key around it, was written."""
        while key not in self.places:
            key = key[:-1]
        return self.places[key]


def shipped() -> dict[str, Path]:
    """The recipes that come with sbpjax, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}


def load(recipe: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe.

    Args:
        recipe: the name of a shipped one, or the path of a YAML file.
        overrides: `key=value`, dots between nested keys, values in YAML: `model.layers=4`, `mesh={data: 8}`.

    Raises:
        UnknownName: there is no such recipe.
        InvalidRecipe: it is not YAML, or a key is unknown, missing or has a wrong value.
    """
    source = _overridden(_read(_find(recipe)), overrides)
    try:
        made = Recipe.model_validate(source.data)
    except ValidationError as problem:
        lines = dict.fromkeys(_complaint(error, source) for error in problem.errors())
        raise InvalidRecipe("\n".join(lines)) from problem
    _check(("strategy",), Strategy.load, made.strategy, source)
    if made.tight is not None:
        _check(("tight", "below"), Strategy.load, made.tight.below, source)
    if made.cluster is not None:
        _check(("cluster",), Cluster.parse, made.cluster, source)
    if made.log.file is not None:
        _check(("log", "file"), _check_writable, made.log.file, source)
    return made


def _check(key: Key, read: Callable[[Any], object], value: Any, source: _Source) -> None:
    """Read what the recipe only names, so that a wrong name is known before anything is planned."""
    try:
        read(value)
    except SbpjaxError as problem:
        raise InvalidRecipe(f"{source.place(key)}: {_dotted(key)}: {problem}") from problem


def _check_writable(file: str) -> None:
    if why := why_not_writable(file):
        raise InvalidRecipe(f"{file!r} cannot be written ({why}); give another path, or null")


def _find(recipe: str | Path) -> Path:
    known = shipped()
    if str(recipe) in known:
        return known[str(recipe)]
    path = Path(recipe)
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return path
    raise UnknownName.among("recipe", str(recipe), known, "A file needs the ending .yaml and must exist.")


def _read(path: Path) -> _Source:
    try:
        text = path.read_text(encoding="utf-8")
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidRecipe(f"{path}: cannot be read ({problem}); check the path") from problem
    except yaml.YAMLError as problem:
        raise InvalidRecipe(f"{path}: not YAML: {problem}") from problem
    except RecursionError as problem:
        raise InvalidRecipe(f"{path}: nested too deeply; write less deeply nested YAML") from problem
    if not isinstance(data, dict):
        raise InvalidRecipe(f"{path}: a recipe is a mapping of keys to values, such as `steps: 300`")
    places: dict[Key, str] = {(): str(path)}
    try:
        _note_places(tree, (), path, places)
    except RecursionError as problem:
        raise InvalidRecipe(f"{path}: an alias (`*name`) stands inside of itself; write its value out") from problem
    return _Source(data, places)


def _note_places(node: yaml.Node, key: Key, path: Path, places: dict[Key, str]) -> None:
    """Remember the line of every key.

    Raises:
        InvalidRecipe: a key is written twice; YAML would silently keep the last.
    """
    if not isinstance(node, yaml.MappingNode):
        return
    for name, value in node.value:
        inner = (*key, name.value)
        place = f"{path}, line {name.start_mark.line + 1}"
        if inner in places:
            raise InvalidRecipe(f"{place}: {_dotted(inner)} was already given at {places[inner]}; keep one of them")
        places[inner] = place
        _note_places(value, inner, path, places)


def _overridden(source: _Source, overrides: Iterable[str]) -> _Source:
    data, places = source.data, dict(source.places)
    for override in overrides:
        name, equals, written = override.partition("=")
        if not equals or not name.strip():
            raise InvalidRecipe(f"override {override!r}: write key=value, such as model.layers=4")
        try:
            value = yaml.safe_load(written)
        except yaml.YAMLError as problem:
            raise InvalidRecipe(f"override {override!r}: the value is not YAML: {problem}") from problem
        key = tuple(name.strip().split("."))
        data = _with(data, key, value, override)
        places = {k: place for k, place in places.items() if k[: len(key)] != key}
        places |= {key[: n + 1]: f"override {override!r}" for n in range(len(key)) if key[: n + 1] not in places}
        places[key] = f"override {override!r}"
    return _Source(data, places)


def _with(data: dict[str, Any], key: tuple[str, ...], value: Any, override: str) -> dict[str, Any]:
    if len(key) == 1:
        return {**data, key[0]: value}
    inner = data.get(key[0])
    if inner is not None and not isinstance(inner, dict):
        raise InvalidRecipe(f"override {override!r}: {key[0]} is {inner!r}, which has no keys inside; set {key[0]}=...")
    return {**data, key[0]: _with(inner or {}, key[1:], value, override)}


def _complaint(error: ErrorDetails, source: _Source) -> str:
    """One line: where, which key, what is wrong, what to do."""
    key, model, field = _field(error["loc"])
    if error["loc"][: len(key) + 1] in source.places:
        key = error["loc"][: len(key) + 1]  # an entry of a free mapping, such as one axis of the mesh
    where = f"{source.place(key)}: {_dotted(key)}" if key else source.place(key)
    meaning = f" ({field.description})" if field and field.description else ""
    match error["type"]:
        case "extra_forbidden":
            known = list(model.model_fields)
            near = difflib.get_close_matches(str(key[-1]), known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            return f"{where}: unknown key; {hint}known here: {', '.join(known)}"
        case "missing":
            return f"{where}: is missing{meaning}; add `{key[-1]}:` to the recipe"
        case "heads":
            return f"{where}: {error['msg']}"
        case _:
            reason = error["msg"].removeprefix("Value error, ").replace("Input should", "it should")
            return f"{where} is {error['input']!r}: {reason}{meaning}"


def _field(loc: Key) -> tuple[Key, type[BaseModel], FieldInfo | None]:
    """The key that an error is about, without what pydantic adds for members of a union; its model; its field."""
    model: type[BaseModel] = Recipe
    field = None
    for depth, part in enumerate(loc):
        field = model.model_fields.get(str(part))
        inner = _model_of(field.annotation) if field else None
        if inner is None:
            return loc[: depth + 1], model, field
        model = inner
    return loc, model, field


def _model_of(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _dotted(key: Key) -> str:
    return ".".join(map(str, key))
