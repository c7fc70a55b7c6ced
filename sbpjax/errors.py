"""The errors that sbpjax raises on purpose. Each message says what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SbpjaxError(Exception):
    """Base of all errors that sbpjax raises on purpose."""


class NotTraceable(SbpjaxError, TypeError):
    """The function is not one that JAX can trace."""


class ArgumentMismatch(SbpjaxError, TypeError):
    """Arguments differ in tree, shape or dtype from those that were planned."""


class UnknownName(SbpjaxError, ValueError):
    """A cluster, strategy, mesh axis, emitter, option or path that does not exist."""

    @classmethod
    def among(cls, what: str, name: object, known: Iterable[str], remedy: str = "") -> UnknownName:
        """`unknown cluster 'h10': did you mean 'h100'? known: ...`."""
        names = sorted(known)
        near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
        hint = f" did you mean {near[0]!r}?" if near else ""
        shown = ", ".join(names[:12]) + (f", ... ({len(names)} in all)" if len(names) > 12 else "")
        return cls(f"unknown {what} {name!r}:{hint} known: {shown or 'none'}.{' ' + remedy if remedy else ''}")


class InvalidStrategy(SbpjaxError, ValueError):
    """A strategy that cannot be read, or a pin that cannot hold."""


class InvalidCluster(SbpjaxError, ValueError):
    """A cluster description that cannot be read or makes no sense."""


class InvalidMesh(SbpjaxError, ValueError):
    """A mesh that does not fit the devices or the cluster."""


class InvalidRule(SbpjaxError, ValueError):
    """A rule whose notation does not fit its op, or that claims what is not so."""


class InfeasiblePlan(SbpjaxError):
    """No plan fits the memory limit."""


class InvalidPlanFile(SbpjaxError, ValueError):
    """A plan file that is damaged, edited, of another version, or of another program."""


class UnboundPlan(SbpjaxError, RuntimeError):
    """A loaded plan was used before `bind` gave it its program."""


class InvalidOption(SbpjaxError, ValueError):
    """An option whose value means nothing."""


class InvalidRecipe(SbpjaxError, ValueError):
    """A recipe that cannot be read, or that says what cannot be done."""


class WitnessUnavailable(SbpjaxError, RuntimeError):
    """XLA's GPU compiler cannot be asked: it is not installed, of another version, or does not know the GPU."""


class CompilationFailed(SbpjaxError, RuntimeError):
    """XLA's GPU compiler refused a program, took too long, or crashed."""
