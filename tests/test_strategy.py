"""Strategies: what they allow for leaves and activations, and how they complain."""

import inspect
from itertools import product
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import pytest
import yaml
from flax import nnx
from flax.training.train_state import TrainState

import sbpjax.strategy
from sbpjax.cluster import Cluster
from sbpjax.errors import InvalidMesh, InvalidStrategy, UnknownName
from sbpjax.program.graph import Graph, Op, Source, Tensor
from sbpjax.program.program import Leaf, Program
from sbpjax.program.trace import trace
from sbpjax.sbp import B, P, Placement, S
from sbpjax.strategy import Restrictions, Strategy, shipped
from sbpjax.strategy.choice import Choice
from sbpjax.strategy.pattern import compiled, nearest

D, F, H, HD, V = 64, 256, 8, 8, 512
LAYER = {
    "attention.query.kernel": (D, H, HD),
    "attention.query.bias": (H, HD),
    "attention.out.kernel": (H, HD, D),
    "attention.out.bias": (D,),
    "mlp.up.kernel": (D, F),
    "mlp.up.bias": (F,),
    "mlp.down.kernel": (F, D),
    "mlp.down.bias": (D,),
    "norm.scale": (D,),
}
LINEN = ("state.params.params.layers_0", "state.opt_state.0.mu.params.layers_0")
NNX = ("model.blocks.0", "optimizer.opt_state.0.mu.blocks.0")
MESH = {"data": 2, "model": 4}


def tensor(shape, name="", dtype=jnp.float32):
    return Tensor(jax.core.ShapedArray(shape, dtype), name)


def program(leaves, ops=(), extra=()):
    """A program with the given (path, shape, role) leaves; `extra` are the tensors that `ops` write."""
    tensors = (*(tensor(shape, path) for path, shape, _ in leaves), *extra)
    graph = Graph(tensors, tuple(ops), tuple(range(len(leaves))), ())
    entries = tuple(Leaf(path, role, False, None) for path, _, role in leaves)
    return Program("step", graph, entries, (), (), None, None, (), list, list, False, "")


def layer(roots, shapes=LAYER):
    parameters, optimizer = roots
    return [
        leaf
        for name, shape in shapes.items()
        for leaf in ((f"{parameters}.{name}", shape, "parameter"), (f"{optimizer}.{name}", shape, "optimizer"))
    ]


def allowed(strategy, leaves, mesh=MESH, ops=()):
    """What a strategy allows, by path."""
    p = leaves if isinstance(leaves, Program) else program(leaves, ops)
    r = Strategy.load(strategy).restrict(p, mesh)
    return {leaf.path: r.leaf(i) for i, leaf in enumerate(p.leaves)}


def only(*placements):
    return frozenset(placements)


BATCH = ("batch.tokens", (16, 32), "batch")
COUNT = ("state.opt_state.0.count", (), "optimizer")


# What the shipped ones say


def test_auto_restricts_nothing():
    r = Strategy.load("auto").restrict(program([*layer(LINEN), BATCH]), MESH)
    assert not any(r.leaves) and not r.activations and not r.relaxed
    assert Strategy.load("auto").mesh(Cluster.parse("8xh100")) is None


@pytest.mark.parametrize("roots", [LINEN, NNX])
def test_dp_zero1_and_fsdp_differ_in_what_is_split_over_data(roots):
    parameter, optimizer = (f"{root}.mlp.up.kernel" for root in roots)
    leaves, mesh = [*layer(roots), BATCH, COUNT], {"data": 8}
    split = only(S(0), S(1))
    for name, expected in {"dp": (only(B), only(B)), "zero1": (only(B), split), "fsdp": (split, split)}.items():
        got = allowed(name, leaves, mesh)
        assert (got[parameter]["data"], got[optimizer]["data"]) == expected
        assert got["batch.tokens"] == {"data": only(S(0))}
        assert got["state.opt_state.0.count"] == {"data": only(B)}


def test_hsdp_splits_inside_the_node_and_repeats_across_nodes():
    got = allowed("hsdp", [*layer(LINEN), BATCH], {"replica": 2, "data": 4})
    assert got["state.params.params.layers_0.mlp.up.kernel"] == {"replica": only(B), "data": only(S(0), S(1))}
    assert got["batch.tokens"] == {"replica": only(S(0)), "data": only(S(0))}


@pytest.mark.parametrize("roots", [LINEN, NNX])
@pytest.mark.parametrize("strategy", ["megatron", "fsdp_megatron", "sequence"])
def test_megatron_splits_pairs_of_layers_by_columns_and_rows(roots, strategy):
    expected = {
        "attention.query.kernel": S(1),
        "attention.query.bias": S(0),
        "attention.out.kernel": S(0),
        "attention.out.bias": B,
        "mlp.up.kernel": S(1),
        "mlp.up.bias": S(0),
        "mlp.down.kernel": S(0),
        "mlp.down.bias": B,
        "norm.scale": B,
    }
    got = allowed(strategy, [*layer(roots), BATCH])
    for name, placement in expected.items():
        assert got[f"{roots[0]}.{name}"]["model"] == only(placement), name
        assert got[f"{roots[1]}.{name}"]["model"] == only(placement), f"optimizer state of {name}"
    assert got["batch.tokens"]["model"] == only(B)


@pytest.mark.parametrize(
    ("path", "shape", "placement"),
    [
        ("wte.embedding", (V, D), S(0)),
        ("tok_embeddings.weight", (V, D), S(0)),
        ("embed.embedding", (V, D), S(0)),
        ("wpe.embedding", (128, D), B),
        ("pos_embedding", (1, 128, D), B),
        ("lm_head.kernel", (D, V), S(1)),
        ("out.kernel", (D, V), S(1)),
        ("h.0.attn.c_attn.kernel", (D, 3 * D), S(1)),
        ("h.0.attn.qkv.kernel", (D, 3, H, HD), S(2)),
        ("h.0.attn.c_proj.kernel", (D, D), S(0)),
        ("h.0.self_attn.q_proj.kernel", (D, D), S(1)),
        ("h.0.self_attn.o_proj.kernel", (D, D), S(0)),
        ("h.0.attention.wq.kernel", (D, D), S(1)),
        ("h.0.attention.wo.kernel", (D, D), S(0)),
        ("h.0.attention.self.query.kernel", (D, D), S(1)),
        ("h.0.attention.output.dense.kernel", (D, D), S(0)),
        ("h.0.intermediate.dense.kernel", (D, D), S(1)),
        ("h.0.mlp.c_fc.kernel", (D, F), S(1)),
        ("h.0.mlp.gate_proj.kernel", (D, F), S(1)),
        ("h.0.mlp.wi_0.kernel", (D, F), S(1)),
        ("h.0.mlp.dense_4h_to_h.kernel", (F, D), S(0)),
        ("h.0.experts.up", (8, D, F), S(2)),
        ("h.0.experts.down", (8, F, D), S(1)),
        # names that say nothing
        ("Dense_0.kernel", (D, F), S(1)),
        ("Dense_1.kernel", (F, D), S(0)),
        ("DenseGeneral_0.kernel", (D, H, HD), S(1)),
        ("DenseGeneral_1.kernel", (H, HD, D), S(0)),
        ("Conv_0.kernel", (3, 3, 32, 64), S(3)),
    ],
)
@pytest.mark.parametrize("root", ["state.params", "model"])
def test_megatron_knows_layers_by_name_and_else_by_shape(root, path, shape, placement):
    assert allowed("megatron", [(f"{root}.{path}", shape, "parameter")])[f"{root}.{path}"] == {"model": only(placement)}


def test_a_square_kernel_of_unknown_name_may_be_split_either_way():
    got = allowed("megatron", [("p.Dense_0.kernel", (D, D), "parameter"), ("p.Dense_0.bias", (D,), "parameter")])
    assert got["p.Dense_0.kernel"]["model"] == only(S(0), S(1))
    assert got["p.Dense_0.bias"]["model"] == only(S(0), B)


def test_few_heads_are_not_split_and_the_plan_can_say_so():
    r = Strategy.load("megatron").restrict(program([("p.key.kernel", (D, 2, HD), "parameter")]), {"model": 8})
    assert r.leaf(0) == {"model": only(B)}
    assert [(x.path, x.axis) for x in r.relaxed] == [("p.key.kernel", "model")]
    assert "dimension 1 (2)" in r.relaxed[0].reason and "8 equal parts" in r.relaxed[0].reason


def test_fsdp_megatron_splits_over_data_what_model_leaves():
    got = allowed("fsdp_megatron", [("p.mlp.up.kernel", (6, 8), "parameter")])
    # S(1) over both axes would need 8 to be cut in 8; 6 is cut in 2.
    assert got["p.mlp.up.kernel"] == {"model": only(S(1)), "data": only(S(0), S(1))}
    got = allowed("fsdp_megatron", [("p.mlp.up.kernel", (6, 4), "parameter")])
    assert got["p.mlp.up.kernel"] == {"model": only(S(1)), "data": only(S(0))}


def test_every_allowed_set_has_a_combination_that_divides():
    shapes = {f"Dense_{i}.kernel": shape for i, shape in enumerate([(4, 4), (6, 2), (2, 2), (8, 1), (3, 5), (4, 2, 2)])}
    leaves = layer(LINEN, shapes)
    for name in shipped():
        mesh = {"replica": 2, "data": 4} if name == "hsdp" else MESH
        for path, sets in allowed(name, leaves, mesh).items():
            shape = next(s for p, s, _ in leaves if p == path)
            combinations = [dict(zip(sets, options, strict=True)) for options in product(*sets.values())]
            placements = [Placement.of(len(shape), c, mesh) for c in combinations]
            assert any(placement.divides(shape, mesh) for placement in placements), (name, path, sets)


@pytest.mark.parametrize(
    ("strategy", "cluster", "mesh"),
    [
        ("dp", "8xh100", {"data": 8}),
        ("fsdp", "4x8xh100", {"data": 32}),
        ("hsdp", "4x8xh100", {"replica": 4, "data": 8}),
        ("hsdp", "8xh100", {"replica": 1, "data": 8}),
        ("megatron", "8xh100", {"model": 8}),
        ("megatron", "4x8xh100", {"data": 4, "model": 8}),
        ("fsdp_megatron", "8xh100", {"data": 2, "model": 4}),
        ("fsdp_megatron", "4x8xh100", {"data": 8, "model": 4}),
        ("dp", "1xh100", {"data": 1}),
    ],
)
def test_the_mesh_follows_the_cluster(strategy, cluster, mesh):
    got = Strategy.load(strategy).mesh(Cluster.parse(cluster))
    assert got == mesh and list(got) == list(mesh)


def test_a_mesh_that_does_not_make_up_the_cluster_is_refused():
    with pytest.raises(InvalidMesh, match="makes 6 of the 8 devices"):
        Strategy.load({"mesh": {"data": 2, "model": 3}}).mesh(Cluster.parse("8xh100"))
    with pytest.raises(InvalidMesh, match="makes 3 of the 8 devices"):
        Strategy.load({"mesh": {"data": "rest", "model": 3}}).mesh(Cluster.parse("8xh100"))


# Rules, pins and how they combine


def test_rules_see_one_layer_of_a_scanned_stack():
    scan = Op(
        jax.lax.scan_p,
        {"num_consts": 0, "num_carry": 1},
        (1, 0, 3),
        (4,),
        Source(),
        body=Graph((tensor((4, D)), tensor((D, F)), tensor((F,))), (), (0, 1, 2), (0,)),
        repeats=6,
    )
    leaves = [
        ("state.params.layers.mlp.up.kernel", (6, D, F), "parameter"),
        ("x", (4, D), "batch"),
        ("state.opt_state.0.mu.layers.mlp.up.kernel", (6, D, F), "optimizer"),
        ("state.params.layers.mlp.up.bias", (6, F), "parameter"),
    ]
    p = program(leaves, [scan], [tensor((4, D))])
    got = allowed("megatron", p, {"model": 2})
    assert got["state.params.layers.mlp.up.kernel"]["model"] == only(S(2))
    assert got["state.opt_state.0.mu.layers.mlp.up.kernel"]["model"] == only(S(2))
    assert allowed("fsdp", p, {"data": 2})["state.params.layers.mlp.up.kernel"]["data"] == only(S(1), S(2))
    pins = {"**.params.layers.mlp.up.kernel": {"data": "S(0)"}, "**.bias": {"model": "kernel"}}
    got = allowed({"extends": "megatron", "roles": {"optimizer": {"data": "parameter"}}, "pins": pins}, p)
    assert got["state.params.layers.mlp.up.kernel"] == {"data": only(S(0)), "model": only(S(2))}
    assert got["state.opt_state.0.mu.layers.mlp.up.kernel"] == {"data": only(S(0)), "model": only(S(2))}
    assert got["state.params.layers.mlp.up.bias"] == {"model": only(S(1))}
    assert allowed({"roles": {"parameter": {"data": "S(0)"}}}, p, {"data": 2})["state.params.layers.mlp.up.kernel"] == {
        "data": only(S(1))
    }


def test_a_pin_beats_a_rule_and_sees_the_whole_shape():
    strategy = {"extends": "dp", "pins": {"p.**.kernel": {"data": "S(1)"}}}
    p = program([("p.dense.kernel", (D, F), "parameter"), ("p.dense.bias", (F,), "parameter")])
    r = Strategy.load(strategy).restrict(p, {"data": 8})
    assert r.leaf(0) == {"data": only(S(1))} and r.pinned(0)
    assert r.leaf(1) == {"data": only(B)} and not r.pinned(1)


def test_own_rules_come_before_those_that_are_extended():
    strategy = {"extends": ["fsdp"], "roles": {"parameter": {"match": "**.bias", "data": "B"}}}
    got = allowed(strategy, [("p.d.kernel", (8, 8), "parameter"), ("p.d.bias", (8,), "parameter")], {"data": 8})
    assert got == {"p.d.kernel": {"data": only(S(0), S(1))}, "p.d.bias": {"data": only(B)}}


def test_free_undoes_what_is_extended():
    strategy = {"extends": "dp", "roles": {"parameter": {"data": "free"}}}
    assert allowed(strategy, [("p.kernel", (8, 8), "parameter")], {"data": 8})["p.kernel"] == {}


def test_alternatives_keep_those_that_divide():
    strategy = {"roles": {"parameter": {"data": ["S(0)", "S(1)", "S(2)"]}}}
    assert allowed(strategy, [("p.k", (8, 3, 16), "parameter")], {"data": 8})["p.k"] == {"data": only(S(0), S(2))}


def test_largest_takes_the_largest_dimension_that_divides():
    strategy = {"roles": {"parameter": {"data": "largest"}}}
    got = allowed(strategy, [("a", (8, 31, 16), "parameter"), ("b", (16, 16), "parameter")], {"data": 8})
    assert got == {"a": {"data": only(S(2))}, "b": {"data": only(S(0), S(1))}}


def test_placements_may_be_values_instead_of_text():
    strategy = {"roles": {"parameter": {"data": [S(0), B]}}}
    assert allowed(strategy, [("p.k", (8,), "parameter")], {"data": 8})["p.k"] == {"data": only(S(0), B)}


def test_an_empty_dimension_is_not_split():
    assert allowed("dp", [("x", (0, 3), "batch")], {"data": 8})["x"] == {"data": only(B)}


def test_an_axis_of_size_one_and_a_known_axis_that_is_absent_restrict_nothing():
    assert allowed("megatron", layer(LINEN), {"data": 8, "model": 1})[f"{LINEN[0]}.mlp.up.kernel"] == {}
    assert allowed("megatron", layer(LINEN), {"data": 8})[f"{LINEN[0]}.mlp.up.kernel"] == {}


@pytest.mark.parametrize("place", ["page", "docstring"])
def test_the_documented_example_loads(place):
    page = Path(__file__).parents[1] / "docs" / "strategies.md"
    if place == "page":
        text = page.read_text().split("```yaml\n")[1].split("```")[0]
    else:
        text = inspect.cleandoc(sbpjax.strategy.__doc__).split(":\n\n")[1].split("\n\n")[0]
    strategy = Strategy.load(yaml.safe_load(text))
    assert len(strategy.pins) == 2 and strategy.roles["batch"] and strategy.description


def test_a_strategy_survives_being_written_as_a_dict(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("extends: fsdp_megatron\npins: {'**.up.kernel': {data: S(0)}, 'module:a/*': {rank: 2, data: B}}\n")
    for name in (*shipped(), file):
        strategy = Strategy.load(name)
        again = Strategy.load(yaml.safe_load(yaml.safe_dump(strategy.to_dict())))
        assert again.to_dict() == strategy.to_dict()
        assert (again.name, again.mesh_sizes) == (strategy.name, strategy.mesh_sizes)
        assert [r.form for rules in again.roles.values() for r in rules] == [
            r.form for rules in strategy.roles.values() for r in rules
        ]
        assert [(p.key, p.form) for p in again.pins] == [(p.key, p.form) for p in strategy.pins]


# Activations


def operation(primitive, inputs, output, module="block_0/mlp", phase="forward", **params):
    return Op(primitive, params, inputs, (output,), Source(module, phase))


def residual_program():
    """x, the residual stream; h = gelu-like of a product; y = x + h w; z = y + broadcast bias."""
    lax = jax.lax
    leaves = [
        ("x", (4, 8, D), "batch"),
        ("w", (D, F), "parameter"),
        ("v", (F, D), "parameter"),
        ("b", (D,), "parameter"),
    ]
    extra = [tensor((4, 8, F)), tensor((4, 8, F)), tensor((4, 8, F)), *(tensor((4, 8, D)) for _ in range(4))]
    ops = [
        operation(lax.dot_general_p, (0, 1), 4),
        operation(lax.tanh_p, (4,), 5),
        operation(lax.add_p, (4, 5), 6),
        operation(lax.dot_general_p, (6, 2), 7),
        operation(lax.add_p, (0, 7), 8, module="block_0"),
        operation(lax.broadcast_in_dim_p, (3,), 9, module="head"),
        operation(lax.add_p, (8, 9), 10, module="head"),
    ]
    return program(leaves, ops, extra)


def test_sequence_splits_the_sums_that_carry_the_residual_stream_and_no_others():
    p = residual_program()
    r = Strategy.load("sequence").restrict(p, {"model": 4})
    restricted = [i for i, op in enumerate(p.graph.ops) if r.tensor(op, 0)]
    assert restricted == [4], "the gelu's own sum and the bias are no residual sums"
    assert r.tensor(p.graph.ops[4], 0) == {"model": only(S(1))}


def test_an_activation_rule_gives_way_where_it_does_not_divide():
    r = Strategy.load("sequence").restrict(residual_program(), {"model": 16})
    assert not r.activations
    assert [(x.path, x.axis) for x in r.relaxed] == [("block_0: add", "model")]


def test_a_module_pin_holds_for_what_the_module_writes():
    strategy = {"pins": {"module:block_*/mlp": {"rank": 3, "primitive": "dot_general", "model": "P"}}}
    p = residual_program()
    r = Strategy.load(strategy).restrict(p, {"model": 4})
    assert {op.outputs[0]: r.tensor(op, 0) for op in p.graph.ops if r.tensor(op, 0)} == {
        4: {"model": only(P())},
        7: {"model": only(P())},
    }


# Placements of another plan


def test_like_fixes_the_leaves_that_are_shared_by_path():
    placements = {
        "state.params.kernel": Placement(((), ("model",))),
        "state.step": Placement(()),
        "x": Placement((("data",),)),
    }
    leaves = [("state.params.kernel", (8, 8), "parameter"), ("x", (3,), "batch"), ("rng", (), "other")]
    r = Restrictions.from_placements(program(leaves), placements, MESH)
    assert r.leaf(0) == {"data": only(B), "model": only(S(1))} and r.pinned(0)
    assert r.leaf(1) == {} and [x.path for x in r.relaxed] == ["x"], "a batch of another size need not be split"
    assert r.leaf(2) == {} and not r.pinned(2)


def test_like_knows_parameters_that_are_passed_without_their_state():
    placements = {"state.params.dense.kernel": Placement(((), ("model",))), "state.mu.dense.bias": Placement(((),))}
    r = Restrictions.from_placements(program([("params.dense.kernel", (8, 8), "parameter")]), placements, MESH)
    assert r.leaf(0)["model"] == only(S(1))
    placements = {"params.dense.kernel": Placement(((), ("model",)))}
    r = Restrictions.from_placements(program([("state.params.dense.kernel", (8, 8), "parameter")]), placements, MESH)
    assert r.leaf(0)["model"] == only(S(1))


def test_like_another_shape_or_nothing_in_common_is_refused():
    placements = {"state.kernel": Placement((("model",), ()))}
    with pytest.raises(InvalidStrategy, match=r"state.kernel: shape \(6, 8\) cannot be placed model=S\(0\)"):
        Restrictions.from_placements(program([("state.kernel", (6, 8), "parameter")]), placements, MESH)
    with pytest.raises(InvalidStrategy, match="shares no leaf with step"):
        Restrictions.from_placements(program([("theta", (8, 8), "parameter")]), placements, MESH)
    with pytest.raises(UnknownName, match="unknown mesh axis 'model'"):
        Restrictions.from_placements(program([("state.kernel", (8, 8), "parameter")]), placements, {"data": 8})


def test_restrictions_compose_with_the_stronger_on_top():
    p = program([("state.kernel", (8, 8), "parameter"), ("state.mu.kernel", (8, 8), "optimizer")])
    like = Restrictions.from_placements(p, {"state.kernel": Placement(((), ("data",)))}, {"data": 8})
    r = like.over(Strategy.load("zero1").restrict(p, {"data": 8}))
    assert r.leaf(0) == {"data": only(S(1))} and r.pinned(0)
    assert r.leaf(1) == {"data": only(S(0), S(1))} and not r.pinned(1)
    # a rule on top does not beat a pin below
    assert Strategy.load("dp").restrict(p, {"data": 8}).over(like).leaf(0) == {"data": only(S(1))}


def test_pins_that_contradict_each_other_are_refused():
    p = program([("state.kernel", (8, 8), "parameter")])
    like = Restrictions.from_placements(p, {"state.kernel": Placement(((), ("data",)))}, {"data": 8})
    pins = Strategy.load({"pins": {"state.kernel": {"data": "S(0)"}}}).restrict(p, {"data": 8})
    with pytest.raises(
        InvalidStrategy, match=r"state.kernel: two pins contradict .* S\(1\) by like=, S\(0\) by the pin"
    ):
        like.over(pins)


# Traced programs


class Block(nn.Module):
    """A transformer's block."""

    @nn.compact
    def __call__(self, x, _=None):
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=4, name="attention")(h, h)
        h = nn.gelu(nn.Dense(128, name="fc1")(nn.LayerNorm()(x)))
        return x + nn.Dense(32, name="fc2")(h), None


class LanguageModel(nn.Module):
    """A transformer whose blocks are scanned and rematerialised."""

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(64, 32, name="wte")(tokens)
        layers = nn.scan(nn.remat(Block), variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        x, _ = layers(name="layers")(x, None)
        return nn.Dense(64, name="lm_head")(x)


def test_sequence_on_a_traced_linen_model_with_scanned_blocks():
    model, optimizer = LanguageModel(), optax.adam(1e-3)
    tokens = jnp.zeros((8, 16), jnp.int32)

    def init():
        params = model.init(jax.random.key(0), tokens)["params"]
        return TrainState.create(apply_fn=model.apply, params=params, tx=optimizer)

    def train_step(state, batch):
        def loss(params):
            logits = state.apply_fn({"params": params}, batch)
            return optax.softmax_cross_entropy_with_integer_labels(logits, batch).mean()

        return state.apply_gradients(grads=jax.grad(loss)(state.params))

    p = trace(train_step, (jax.eval_shape(init), tokens))
    r = Strategy.load("sequence").restrict(p, MESH)
    got = {leaf.path: r.leaf(i) for i, leaf in enumerate(p.leaves)}
    expected = {
        "wte.embedding": S(0),
        "lm_head.kernel": S(1),
        "layers.attention.query.kernel": S(2),
        "layers.attention.query.bias": S(1),
        "layers.attention.out.kernel": S(1),
        "layers.attention.out.bias": B,
        "layers.fc1.kernel": S(2),
        "layers.fc2.kernel": S(1),
        "layers.LayerNorm_0.scale": B,
    }
    for name, placement in expected.items():
        for root in ("state.params", "state.opt_state.0.mu", "state.opt_state.0.nu"):
            assert got[f"{root}.{name}"]["model"] == only(placement), name
    sums = [op for op, _ in r.activations]
    assert {(op.name, op.source.module) for op in sums} == {("add", "layers")}
    assert sorted(op.source.phase for op in sums if op.source.phase == "forward") == ["forward"] * 2
    assert all(allowed == {"model": only(S(1))} for allowed in r.activations.values())
    fsdp = Strategy.load("fsdp").restrict(p, {"data": 2})
    stacked = [leaf.path for leaf in p.leaves].index("state.params.layers.fc1.kernel")
    assert fsdp.leaf(stacked) == {"data": only(S(1), S(2))}, "the scanned dimension is not split"


class Residual(nnx.Module):
    """x + down(gelu(up(x)))."""

    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(16, 64, rngs=rngs), nnx.Linear(64, 16, rngs=rngs)

    def __call__(self, x):
        return x + self.down(nnx.gelu(self.up(x)))


def test_sequence_on_a_traced_nnx_model():
    model = Residual(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, x):
        optimizer.update(model, nnx.grad(lambda m: (m(x) ** 2).mean())(model))

    p = trace(step, (model, optimizer, jnp.zeros((4, 8, 16))))
    r = Strategy.load("sequence").restrict(p, MESH)
    got = {leaf.path: r.leaf(i) for i, leaf in enumerate(p.leaves)}
    for root in ("model", "optimizer.opt_state.0.mu"):
        assert got[f"{root}.up.kernel"]["model"] == only(S(1))
        assert got[f"{root}.up.bias"]["model"] == only(S(0))
        assert got[f"{root}.down.kernel"]["model"] == only(S(0))
        assert got[f"{root}.down.bias"]["model"] == only(B)
    assert got["x"] == {"data": only(S(0)), "model": only(B)}
    assert [(op.name, k) for op, k in r.activations] == [("add", 0)]


# Complaints


def test_an_unknown_strategy_is_refused_with_the_near_name():
    with pytest.raises(UnknownName, match="unknown strategy 'megatorn': did you mean 'megatron'"):
        Strategy.load("megatorn")
    with pytest.raises(UnknownName, match="must exist"):
        Strategy.load("nowhere/mine.yaml")


def test_an_axis_that_the_mesh_lacks_is_refused_with_the_near_name():
    with pytest.raises(UnknownName, match=r"axis 'replica': .*hsdp.yaml, line 6, roles.parameter speaks"):
        Strategy.load("hsdp").restrict(program([BATCH]), {"data": 8})
    with pytest.raises(UnknownName, match="unknown mesh axis 'modle': did you mean 'model'"):
        Strategy.load({"roles": {"batch": {"modle": "B"}}}).restrict(program([BATCH]), {"data": 8})


@pytest.mark.parametrize(
    ("pins", "leaves", "message"),
    [
        ({"p.k": {"data": "S(0)"}}, [("p.k", (10, 16), "parameter")],
         r"pins.p.k: data=S\(0\) cannot hold for p.k: dimension 0 \(10\) of shape \(10, 16\) cannot be cut into 8 "
         r"equal parts; data=S\(1\), or data=B, or a size of 16 for dimension 0 would do"),
        ({"p.k": {"data": "S(2)"}}, [("p.k", (8, 16), "parameter")], r"shape \(8, 16\) has no such dimension"),
        ({"p.k": {"data": "P"}}, [("p.k", (8, 16), "parameter")], "never partial, between steps"),
        ({"p.k": {"data": "largest"}}, [("p.k", (3, 5), "parameter")], "no dimension of shape"),
        ({"p.dense.kernl": {"data": "S(0)"}}, [("p.dense.kernel", (8,), "parameter")], "did you mean 'p.dense.kernel'"),
        ({"**.atention.k": {"data": "S(0)"}}, [("p.attention.k", (8,), "parameter")], "did you mean 'p.attention.k'"),
        ({"module:blok_0/mlp": {"data": "B"}}, [BATCH], "no named modules"),
    ],
)  # fmt: skip
def test_a_pin_that_cannot_hold_says_why_and_what_would(pins, leaves, message):
    with pytest.raises(InvalidStrategy, match=message):
        allowed({"pins": pins}, leaves, {"data": 8})


def test_two_pins_on_one_dimension_that_divides_by_each_but_not_by_both_are_refused():
    with pytest.raises(InvalidStrategy, match=r"model=S\(0\) cannot hold .* with data=S\(0\); .* a size of 8 for"):
        allowed({"pins": {"k": {"data": "S(0)", "model": "S(0)"}}}, [("k", (4, 4), "parameter")])


def test_a_module_pin_that_matches_nothing_suggests_the_near_module():
    with pytest.raises(InvalidStrategy, match="did you mean 'block_0/mlp'"):
        Strategy.load({"pins": {"module:blok_0/mlp": {"model": "B"}}}).restrict(residual_program(), {"model": 4})


def test_a_module_pin_that_does_not_divide_is_refused():
    strategy = Strategy.load({"pins": {"module:block_0": {"model": "S(1)"}}})
    with pytest.raises(InvalidStrategy, match=r"model=S\(1\) cannot hold for block_0: add"):
        strategy.restrict(residual_program(), {"model": 16})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("roles:\n  batch:\n    data: S(0\n", "mine.yaml, line 3, roles.batch.data: 'S\\(0' is no placement"),
        ("roles:\n  batch:\n    data: S(-٣)\n", "line 3, roles.batch.data: .* is no placement"),
        ("roles:\n  parameter: {data: larges}\n", "line 2, .*did you mean 'largest'"),
        ("roles:\n  parameters: {data: B}\n", "line 2, .*unknown key 'parameters': did you mean 'parameter'"),
        ("name: x\npin: {}\n", "line 2, pin: unknown key 'pin': did you mean 'pins'"),
        ("roles:\n  parameter:\n    - {mach: '**.kernel', data: B}\n", "line 3, .*did you mean 'match'"),
        ("roles:\n  parameter: {match: x}\n", "line 2, .*names no mesh axis"),
        ("roles:\n  parameter: {match: 're:(', data: B}\n", "line 2, .*not a regular expression"),
        ("roles:\n  parameter: {match: '{a', data: B}\n", "line 2, .*braces"),
        ("roles:\n  parameter: {shape: broad, data: B}\n", "line 2, roles.parameter.shape: .*'wide'"),
        ("roles:\n  parameter: {data: P(max)}\n", "line 2, .*never partial"),
        ("roles:\n  activation: {data: kernel}\n", "line 2, .*speaks of parameters"),
        ("pins:\n  p.k: {data: []}\n", "line 2, pins.p.k.data: an empty list allows nothing"),
        ("pins:\n  're:(': {data: B}\n", "line 2, .*not a regular expression"),
        ("pins:\n  p.k: {data: P}\n", "line 2, pins.p.k: .*never partial"),
        ("mesh: {data: half}\n", "line 1, mesh: data: 'half' is no size"),
        ("mesh: {data: 0}\n", "line 1, mesh: data: 0 is no size"),
        ("mesh: {data: rest, model: -1}\n", "only one axis can take the rest"),
        ("extends: fspd\n", "unknown strategy 'fspd': did you mean 'fsdp'.*line 1, extends"),
        ("roles: {\n", "line 2: not YAML"),
        ("name: a\nname: b\n", "line 2: 'name' stands here a second time"),
        ("- fsdp\n", "a strategy is a mapping"),
        ("name: \x00\n", "not YAML"),
        ("roles: &a {parameter: *a}\n", "nested too deeply.*alias"),
        ("name: x\n? [a, b]\n: c\n", "line 2: a key must be text"),
        ("extends:\n  extends:\n    nmae: x\n", "line 3, nmae: unknown key 'nmae': did you mean 'name'"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_line_and_key(tmp_path, text, message):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises((InvalidStrategy, UnknownName), match=message):
        Strategy.load(file)


def test_strategies_that_extend_each_other_are_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(InvalidStrategy, match=r"a.yaml extends b.yaml extends a.yaml"):
        Strategy.load(tmp_path / "a.yaml")


@pytest.mark.parametrize("one", [{"extends": "dp"}, [{"extends": ["dp"]}]])
def test_a_strategy_that_is_extended_may_be_written_out(one):
    leaves = [("p.k", (8, 8), "parameter"), ("x", (8, 8), "batch")]
    assert allowed({"extends": one}, leaves, {"data": 8}) == allowed("dp", leaves, {"data": 8})
    assert Strategy.load({"extends": one}).mesh_sizes == Strategy.load("dp").mesh_sizes


@pytest.mark.parametrize("strategy", [None, 5, ["dp"]])
def test_what_is_no_strategy_is_refused(strategy):
    with pytest.raises(InvalidStrategy, match="give a name such as fsdp"):
        Strategy.load(strategy)


def test_a_file_may_extend_its_neighbour(tmp_path):
    (tmp_path / "base.yaml").write_text("extends: dp\nroles: {parameter: {model: B}}\n")
    (tmp_path / "mine.yaml").write_text("extends: base.yaml\n")
    got = allowed(str(tmp_path / "mine.yaml"), [("p.k", (8,), "parameter")])
    assert got["p.k"] == {"data": only(B), "model": only(B)}


# Patterns and words


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a.*.k", ["a.b.k"], ["a.k", "a.b.c.k"]),
        ("a.**.k", ["a.k", "a.b.k", "a.b.c.k"], ["a.bk", "b.k"]),
        ("**.k", ["k", "a.k", "a.b.k"], ["ak", "a.kk"]),
        ("a.**", ["a", "a.b", "a.b.c"], ["ab"]),
        ("{a,b_*}.k", ["a.k", "b_1.k"], ["b.k", "c.k"]),
        ("a?.k", ["a1.k"], ["a.k", "a12.k", "a..k"]),
        ("re:a.*k", ["a.b.k", "ak"], ["a"]),
        ("a+.k", ["a+.k"], ["aa.k"]),
    ],
)
def test_patterns_match_whole_paths(pattern, yes, no):
    assert all(compiled(pattern).fullmatch(path) for path in yes)
    assert not any(compiled(pattern).fullmatch(path) for path in no)


def test_the_nearest_path_is_found_for_a_short_pattern():
    paths = ["state.params.layers_0.mlp.up.kernel", "state.params.layers_0.mlp.down.kernel"]
    assert nearest("mlp.don.kernel", paths) == paths[1]
    assert nearest("**.up.kernal", paths) == paths[0]


@pytest.mark.parametrize("text", ["S(0)", "S(-1)", "B", "P(sum)", "P(max)", "split", "free"])
def test_a_choice_reads_what_it_writes(text):
    assert Choice.parse(text).plain() == text
    assert Choice.parse([text, "B"]).plain() == [text, "B"]
