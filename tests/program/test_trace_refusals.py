"""What cannot be traced, or called again with other arguments, is refused with the place and the remedy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from sbpjax.errors import ArgumentMismatch, InvalidOption, NotTraceable
from sbpjax.program.trace import trace


def branches(x):
    if x.sum() > 0:
        return x
    return -x


def to_numpy(x):
    return np.sin(x)


def masks(x):
    return x[x > 0]


def indexes(x):
    return list(range(x.shape[0]))[x[0].astype(int)]


LEAKED = []


def leaks(x):
    jax.jit(lambda y: LEAKED.append(y) or y)(x)
    return LEAKED.pop() + 1


REF = jax.new_ref(jnp.ones(3))


def mutates(x):
    REF[...] += x


def returns_text(x):
    return {"x": x, "name": "text"}


@pytest.mark.parametrize(
    ("fn", "remedy"),
    [
        (branches, "jnp.where or lax.cond"),
        (to_numpy, "use jax.numpy instead of numpy"),
        (masks, "shapes must be known"),
        (indexes, "jnp.take"),
        (returns_text, "return arrays"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_function_that_is_not_jittable_is_refused_with_line_and_remedy(fn, remedy):
    with pytest.raises(NotTraceable, match=remedy) as caught:
        trace(fn, (jnp.ones(3),))
    assert fn.__name__ in str(caught.value)
    assert "test_trace_refusals.py:" in str(caught.value) or fn is returns_text
    assert caught.value.__cause__ is not None


def test_values_of_other_functions_and_mutable_arrays_are_refused():
    with pytest.raises(NotTraceable, match="leaks uses a value that belongs to another traced function"):
        trace(leaks, (jnp.ones(3),))
    with pytest.raises(NotTraceable, match="mutates closes over a mutable array"):
        trace(mutates, (jnp.ones(3),))
    with pytest.raises(NotTraceable, match=r"state\.r is a mutable array"):
        trace(lambda state: state["r"][...], ({"r": REF},))
    with nnx.var_defaults(ref=True):
        module = nnx.BatchNorm(2, rngs=nnx.Rngs(0))
    with pytest.raises(NotTraceable, match=r"module\.\w+ is a mutable array"):
        trace(lambda module, x: module(x), (module, jnp.ones((3, 2))))


def test_what_is_not_callable_is_refused():
    with pytest.raises(NotTraceable, match="not a function: 3"):
        trace(3, ())  # type: ignore[arg-type]


def test_ordinary_errors_of_the_user_are_their_own():
    with pytest.raises(TypeError, match="dot_general"):
        trace(lambda x: x @ jnp.ones((5, 5)), (jnp.ones((3, 3)),))
    with pytest.raises(ZeroDivisionError):
        trace(lambda x: x / (1 // 0), (jnp.ones(3),))


def test_an_argument_that_is_no_array_is_refused_by_name():
    with pytest.raises(NotTraceable, match=r"options\.mode is a str.*static_argnums"):
        trace(lambda x, options: x, (jnp.ones(3), {"mode": "fast"}))


def test_a_static_argument_must_be_hashable():
    with pytest.raises(NotTraceable, match="static argument n cannot be hashed"):
        trace(lambda x, n: x * n[0], (jnp.ones(3), [2]), static_argnums=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"donate_argnums": 5}, r"donate_argnums=\(5,\).*1 positional"),
        ({"static_argnums": 5}, r"static_argnums=\(5,\).*1 positional"),
        ({"donate_argnums": "0"}, "donate_argnums='0': give the position"),
        ({"static_argnums": 0.5}, "static_argnums=0.5: give the position"),
        ({"donate_argnums": 0, "static_argnums": 0}, "cannot intersect"),
        ({"donate_argnums": -2}, "donate_argnums=-2: there are 1 positional arguments"),
    ],
)
def test_positions_of_arguments_that_are_not_there_are_refused(options, message):
    with pytest.raises(InvalidOption, match=message):
        trace(lambda x: x, (1,), **options)


def test_negative_positions_count_from_the_last():
    """`jax.jit` itself drops negative donated ones silently (0.10.2)."""
    program = trace(lambda x, y, n: x * n + y, (jnp.ones(3), jnp.ones(3), 2), static_argnums=-1, donate_argnums=(-3,))
    assert program.static_argnums == (2,)
    assert [leaf.donated for leaf in program.leaves] == [True, False]


class Scaled:
    @functools.partial(jax.jit, static_argnums=-1)
    def times(self, x, n):
        return x * n


def test_negative_positions_of_a_jitted_method_are_kept():
    assert trace(Scaled().times, (jnp.ones(3), 2)).static_argnums == (1,)


@pytest.mark.parametrize(
    ("fn", "args", "says"),
    [
        (lambda x, y: x + y, (jnp.ones(3),), r"\(x, y\), and 1 argument was given: missing a required argument: 'y'"),
        (lambda x: x, (jnp.ones(3), 1), "2 arguments were given: too many"),
        (lambda model, x: model(x), (nnx.Linear(2, 2, rngs=nnx.Rngs(0)),), "missing a required argument: 'x'"),
        (jax.jit(lambda x, y: x), (1,), "missing a required argument: 'y'"),
    ],
)
def test_too_few_or_too_many_arguments_are_refused(fn, args, says):
    with pytest.raises(ArgumentMismatch, match=says):
        trace(fn, args)


def test_a_decorator_may_add_arguments():
    def with_two(fn):
        return functools.wraps(fn)(lambda x: fn(x, 2.0))

    assert len(trace(with_two(lambda x, y: x * y), (jnp.ones(3),)).leaves) == 1


def test_nnx_tree_mode_and_hijax_are_refused():
    model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    with pytest.raises(NotTraceable, match="tree mode"):
        trace(nnx.jit(lambda model, x: model(x), graph=False), (model, jnp.ones((1, 2))))
    with nnx.var_defaults(hijax=True):
        hijax = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    with pytest.raises(NotTraceable, match=r"model\.bias is a hijax variable"):
        trace(lambda model, x: model(x), (hijax, jnp.ones((1, 2))))


def test_a_closed_over_module_that_is_changed_is_refused():
    model = nnx.BatchNorm(2, rngs=nnx.Rngs(0))
    with pytest.raises(NotTraceable, match="pass the nnx object as an argument"):
        trace(lambda x: model(x), (jnp.ones((3, 2)),))


def step(state, x, *, scale=1.0):
    return {"w": state["w"] + scale * x.sum()}


STATE = {"w": jnp.ones((2, 3)), "b": None}


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (({"w": jnp.ones((2, 4)), "b": None}, jnp.ones(3)), {}, r"state\.w was float32\[2,3\].*is float32\[2,4\]"),
        (({"w": jnp.ones((2, 3), jnp.int32), "b": None}, jnp.ones(3)), {}, r"state\.w was float32.*int32"),
        (({"w": jnp.ones((2, 3))}, jnp.ones(3)), {}, "containers or their static fields"),
        (({"w": jnp.ones((2, 3)), "b": jnp.ones(1)}, jnp.ones(3)), {}, r"unexpected state\.b"),
        ((STATE,), {}, "missing x"),
        ((STATE, jnp.ones(3)), {"scale": 2.0}, "unexpected scale"),
    ],
)
def test_calls_of_another_form_are_refused_by_leaf(args, kwargs, message):
    program = trace(step, (STATE, jnp.ones(3)))
    with pytest.raises(ArgumentMismatch, match=message):
        program.flatten_call(args, kwargs)


def test_numbers_numpy_and_weak_types_are_one_as_for_jax():
    program = trace(lambda n, x: x * n, (1, np.arange(3.0)))
    leaves = program.flatten_call((jnp.int32(4), np.arange(3.0)), {})
    assert leaves[0] == 4
    with pytest.raises(ArgumentMismatch, match="n was"):
        program.flatten_call((1.5, np.arange(3.0)), {})


def test_static_arguments_must_be_those_that_were_traced():
    @functools.partial(jax.jit, static_argnames=("n", "mode"))
    def fn(x, n, mode="sum"):
        return x * n

    program = trace(fn, (jnp.ones(3), 2))
    assert len(program.flatten_call((jnp.ones(3), 2), {})) == 1
    with pytest.raises(ArgumentMismatch, match="static argument n was 2 when this was traced and is 3"):
        program.flatten_call((jnp.ones(3), 3), {})
    with pytest.raises(ArgumentMismatch, match="static argument mode"):
        program.flatten_call((jnp.ones(3), 2), {"mode": "mean"})


def test_nnx_models_of_another_width_are_refused_by_variable():
    def fn(model, x):
        return model(x)

    program = trace(fn, (nnx.Linear(2, 2, use_bias=False, rngs=nnx.Rngs(0)), jnp.ones((1, 2))))
    other = nnx.Linear(2, 2, use_bias=True, rngs=nnx.Rngs(0))
    with pytest.raises(ArgumentMismatch, match=r"unexpected model\.bias"):
        program.flatten_call((other, jnp.ones((1, 2))), {})
