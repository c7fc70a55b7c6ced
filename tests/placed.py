"""Tensors spread over devices in numpy, and an interpreter of boxing steps on them: the tests' own idea of both.

A spread tensor is one array whose leading dimensions are the mesh axes and whose others are a device's part.
"""

import math

import numpy as np

COMBINE = {"sum": np.add.reduce, "max": np.maximum.reduce, "min": np.minimum.reduce}
FAR = 1000


def neutral(op):
    return {"sum": 0, "max": -(10**6), "min": 10**6}[op]


def spread(whole, placement, mesh, rng):
    """What each device holds; partial summands are random, and only together they make the tensor."""
    shape, cuts = [], []
    for size, axes in zip(whole.shape, placement.dims, strict=True):
        parts = [mesh[a] for a in axes]
        cuts += [*axes, None]
        shape += [*parts, size // math.prod(parts)]
    x = whole.reshape(shape)
    order = [cuts.index(a) for a in mesh if a in cuts] + [i for i, a in enumerate(cuts) if a is None]
    x = x.transpose(order)
    x = np.expand_dims(x, tuple(i for i, a in enumerate(mesh) if a not in cuts))
    x = np.broadcast_to(x, (*mesh.values(), *x.shape[len(mesh) :])).copy()
    if placement.partial:
        view, back = grouped(x, placement.partial, mesh)
        view = summands(view[:, 0], view.shape[1], placement.op, rng)
        x = back(view)
    return x


def summands(value, count, op, rng):
    """`count` values along a new second dimension that combine to `value`."""
    if op == "sum":
        parts = rng.integers(-FAR, FAR, (value.shape[0], count, *value.shape[1:])).astype(value.dtype)
        parts[:, 0] = value - parts[:, 1:].sum(1)
        return parts
    away = rng.integers(1, FAR, (value.shape[0], count, *value.shape[1:])).astype(value.dtype)
    winner = rng.integers(0, count, value.shape)
    np.put_along_axis(away, winner[:, None], 0, axis=1)
    return value[:, None] - away if op == "max" else value[:, None] + away


def collect(x, placement, mesh):
    """The whole tensor; copies must agree."""
    if placement.partial:
        view, back = grouped(x, placement.partial, mesh)
        total = COMBINE[placement.op](view, axis=1)
        x = back(np.broadcast_to(total[:, None], view.shape))
    names = [*mesh, *range(placement.rank)]
    for i, axis in enumerate(mesh):
        if axis not in placement.split_axes:
            assert (x == x.take([0], axis=i)).all(), f"copies along {axis} differ"
    x = x[tuple(slice(None) if a in placement.split_axes else 0 for a in mesh)]
    names = [n for n in names if n not in mesh or n in placement.split_axes]
    order = [names.index(n) for d, axes in enumerate(placement.dims) for n in (*axes, d)]
    local = x.shape[len(placement.split_axes) :]
    counts = [math.prod(mesh[a] for a in axes) for axes in placement.dims]
    return x.transpose(order).reshape([n * size for n, size in zip(counts, local, strict=True)])


def grouped(x, axes, mesh):
    """The same as (other devices, devices along `axes`, part), and the way back."""
    names = list(mesh)
    front = [names.index(a) for a in names if a not in axes]
    inner = [names.index(a) for a in axes]
    rest = list(range(len(names), x.ndim))
    order = [*front, *inner, *rest]
    outer_shape = [x.shape[i] for i in front]
    inner_shape = [x.shape[i] for i in inner]
    view = x.transpose(order).reshape(math.prod(outer_shape), math.prod(inner_shape), *x.shape[len(names) :])

    def back(y):
        return y.reshape(*outer_shape, *inner_shape, *y.shape[2:]).transpose(np.argsort(order))

    return view, back


def run(x, step, mesh):
    """One step on all devices, from the step's own fields."""
    view, back = grouped(x, step.axes, mesh)
    devices = view.shape[1]
    dim = None if step.dim is None else step.dim + 2
    if step.kind == "all_reduce":
        y = np.broadcast_to(COMBINE[step.op](view, axis=1)[:, None], view.shape)
    elif step.kind == "reduce_scatter":
        assert step.op == "sum"
        y = np.stack(np.split(COMBINE[step.op](view, axis=1), devices, axis=dim - 1), axis=1)
    elif step.kind == "all_gather":
        joined = np.concatenate(np.moveaxis(view, 1, 0), axis=dim - 1)
        y = np.repeat(joined[:, None], devices, axis=1)
    elif step.kind == "all_to_all":
        sent = np.stack(np.split(view, devices, axis=step.to_dim + 2), axis=1)  # others, receiver, sender, part
        y = np.concatenate(np.moveaxis(sent, 2, 0), axis=dim)
    elif step.kind == "permute":
        assert sorted(s for s, _ in step.pairs) == sorted(t for _, t in step.pairs) == list(range(devices))
        y = np.empty_like(view)
        for source, target in step.pairs:
            y[:, target] = view[:, source]
    elif step.kind == "slice":
        y = np.stack([np.split(view[:, i], devices, axis=dim - 1)[i] for i in range(devices)], axis=1)
    elif step.kind == "mask":
        y = np.full_like(view, neutral(step.op))
        y[:, 0] = view[:, 0]
    elif step.kind == "pad":
        size = view.shape[dim]
        shape = list(view.shape)
        shape[dim] = size * devices
        y = np.full(shape, neutral(step.op), view.dtype)
        for i in range(devices):
            at = [slice(None)] * (view.ndim - 1)
            at[dim - 1] = slice(i * size, (i + 1) * size)
            y[:, i][tuple(at)] = view[:, i]
    else:
        raise AssertionError(step)
    return back(y)
