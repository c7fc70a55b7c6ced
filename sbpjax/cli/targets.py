"""`module:function` on the command line, and the arguments that it is planned for."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

from sbpjax.errors import NotTraceable, UnknownName


def find(target: str) -> Any:
    """The object that `package.module:name` names; the current folder is searched first.

    Raises:
        UnknownName: there is no such module, or nothing of that name in it.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or not attribute:
        raise UnknownName(f"{target!r} names no function: write module:function, such as train:train_step")
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        if problem.name is None or not (module_name + ".").startswith(problem.name + "."):
            raise  # the module is there; what it imports is not
        raise UnknownName(
            f"{target!r}: there is no module {problem.name!r} here or among what is installed; run from the folder "
            "that holds it, or set PYTHONPATH"
        ) from problem
    for name in attribute.split("."):
        if not hasattr(found, name):
            known = [n for n in vars(found) if not n.startswith("_")] if hasattr(found, "__dict__") else []
            raise UnknownName.among(f"name in {module_name}", name, known)
        found = getattr(found, name)
    return found


def function_and_arguments(target: str, arguments: str | None) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function to plan, and the arguments to plan it for.

    Args:
        target: with `arguments`, the function; without, a function of no arguments that returns the two.
        arguments: a function of no arguments that returns the tuple of the arguments; arrays or ShapeDtypeStructs.

    Raises:
        NotTraceable: one of them is not what it should be.
    """
    found = find(target)
    if not callable(found):
        raise NotTraceable(f"{target} is {type(found).__name__}, not a function: name the step itself")
    if arguments is None:
        made = _call(found, target, "give its arguments by --args module:function, a function that returns them")
        if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0])):
            raise NotTraceable(
                f"{target}() returned {type(made).__name__}: without --args it must return the pair of the function "
                "to plan and the tuple of its arguments"
            )
        found, values = made
        return found, values if isinstance(values, tuple) else (values,)
    maker = find(arguments)
    if not callable(maker):
        return found, maker if isinstance(maker, tuple) else (maker,)
    values = _call(maker, arguments, "--args names a function that takes none and returns the arguments")
    return found, values if isinstance(values, tuple) else (values,)


def _call(maker: Callable[..., Any], name: str, remedy: str) -> Any:
    try:
        inspect.signature(maker).bind()
    except TypeError as problem:
        raise NotTraceable(f"{name} cannot be called without arguments ({problem}); {remedy}") from problem
    return maker()
