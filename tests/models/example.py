"""What the tests want to know of a train step: how to begin, what to feed it, and what it makes of its state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Example:
    """A train step for one device.

    Attributes:
        begin: from a float dtype to the train step and its state before the first step, a tuple of arguments.
        batch: from a float dtype and a number to the batch of that step.
        advance: from the step (or what stands for it), the state and a batch to the next state and the loss. State that
            is changed in place is its own successor.
        trees: from the state to its trees by name; `first_moment` is Adam's, of which gradients are read.
        evaluate: from a float dtype to a function of (state's first argument, batch) that changes nothing.
    """

    begin: Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]
    batch: Callable[[Any, int], Any]
    advance: Callable[[Callable[..., Any], tuple[Any, ...], Any], tuple[tuple[Any, ...], Any]]
    trees: Callable[[tuple[Any, ...]], dict[str, Any]]
    evaluate: Callable[[Any], Callable[..., Any]]


def returned(step: Callable[..., Any], state: tuple[Any, ...], batch: Any) -> tuple[tuple[Any, ...], Any]:
    """`advance` of a step that returns its next state and metrics."""
    (train_state,) = state
    train_state, metrics = step(train_state, batch)
    return (train_state,), metrics["loss"]


def adam_trees(params: Any, opt_state: Any, **others: Any) -> dict[str, Any]:
    """The trees of a state whose optimizer is `optax.adam`."""
    adam = opt_state[0]
    return {"params": params, "first_moment": adam.mu, "second_moment": adam.nu, "count": adam.count, **others}
