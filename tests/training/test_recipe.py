"""Recipes are checked before anything is compiled, and a wrong one is refused by key, place and remedy."""

from pathlib import Path

import pytest

from sbpjax.errors import InvalidRecipe, UnknownName
from sbpjax.training.recipefile import load, shipped

GOOD = """\
name: mine
steps: 20
batch: 8
model:
  width: 64
"""


@pytest.fixture
def write(tmp_path):
    def at(text: str) -> Path:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return path

    return at


def test_every_shipped_recipe_is_valid():
    assert "char_lm" in shipped()
    for name in shipped():
        assert load(name).name == name


def test_a_preset_gives_sizes_and_keys_beside_it_win():
    model = load("char_lm", ["model.preset=small", "model.layers=3"]).model
    assert (model.layers, model.width, model.heads, model.hidden) == (3, 384, 6, 4 * 384)


def test_overrides_reach_nested_keys_in_yaml(write):
    recipe = load(
        write(GOOD), ["optimizer.learning_rate=1e-4", "mesh={data: 2, model: 4}", "memory_limit=1GiB", "seed=3"]
    )
    assert recipe.optimizer.learning_rate == 1e-4
    assert recipe.mesh == {"data": 2, "model": 4}
    assert recipe.memory_limit == 2**30
    assert recipe.seed == 3
    assert recipe.optimizer.b1 == load(write(GOOD)).optimizer.b1


def test_a_mesh_may_be_written_as_on_the_command_line(write):
    assert load(write(GOOD), ["mesh=data=2,model=4"]).mesh == {"data": 2, "model": 4}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stepz: 3\n" + GOOD, ["mine.yaml, line 1: stepz: unknown key", "did you mean 'steps'"]),
        (GOOD + "  widht: 3\n", ["line 6: model.widht: unknown key", "did you mean 'width'"]),
        (GOOD.replace("20", "many"), ["line 2: steps is 'many'", "integer", "how many steps to train"]),
        (GOOD.replace("steps: 20\n", ""), ["steps: is missing", "add `steps:` to the recipe"]),
        (GOOD.replace("64", "100"), ["line 4: model: width 100", "4 heads", "width 96 can"]),
        (GOOD + "seed: 1\nseed: 2\n", ["line 7: seed was already given at", "line 6"]),
        (GOOD + "mesh: {data: none}\n", ["line 6: mesh.data is 'none'", "integer"]),
        (GOOD + "memory_limit: 3 parsecs\n", ["line 6: memory_limit is '3 parsecs'", "72GiB"]),
        (GOOD + "cluster: 8xh10\n", ["line 6: cluster: unknown cluster 'h10'", "did you mean 'h100'"]),
        (GOOD + "strategy: fsdb\n", ["line 6: strategy: unknown strategy 'fsdb'", "did you mean 'fsdp'"]),
        (GOOD + "tight: {below: dpp}\n", ["line 6: tight.below: unknown strategy 'dpp'"]),
        (GOOD + "emitter: pmap\n", ["line 6: emitter is 'pmap'", "shard_map"]),
        ("- 1\n", ["a recipe is a mapping"]),
        ("a: [1\n", ["not YAML"]),
        ("model: &a {tight: *a}\n", ["mine.yaml", "alias"]),
    ],
)
def test_a_wrong_recipe_is_refused_with_place_and_remedy(write, text, says):
    with pytest.raises(InvalidRecipe) as refused:
        load(write(text))
    for words in says:
        assert words in str(refused.value)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("steps", "write key=value"),
        ("steps=[1", "not YAML"),
        ("optimizer.lr=1", "override 'optimizer.lr=1': optimizer.lr: unknown key"),
        ("steps.more=1", "steps is 240, which has no keys inside"),
        ("model.vocab=100", "model.vocab is 100"),
        ("optimizer.warmup=2", "optimizer.warmup is 2"),
        ("mesh=data=٨", "override 'mesh=data=٨': mesh is '٨'"),
    ],
)
def test_a_wrong_override_is_named(override, says):
    with pytest.raises(InvalidRecipe) as refused:
        load("char_lm", [override])
    assert says in str(refused.value)


def test_all_mistakes_are_told_at_once(write):
    with pytest.raises(InvalidRecipe) as refused:
        load(write(GOOD.replace("20", "x").replace("8", "y")))
    assert "steps is 'x'" in str(refused.value) and "batch is 'y'" in str(refused.value)


def test_an_unknown_recipe_suggests_the_near_one():
    with pytest.raises(UnknownName, match="did you mean 'char_lm'"):
        load("char_ml")
