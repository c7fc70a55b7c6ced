"""A recipe: everything that a training run needs, typed, and checked before anything is compiled.

The field descriptions below are the reference of the format; errors quote them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)
from pydantic_core import PydanticCustomError

from sbpjax.cluster.quantities import parse_bytes

PRESETS: Final[dict[str, dict[str, int]]] = {
    "tiny": {"layers": 2, "width": 128, "heads": 4},
    "small": {"layers": 6, "width": 384, "heads": 6},
    "base": {"layers": 12, "width": 768, "heads": 12},
}
"""Sizes of models by name; any of them may be set beside the preset."""

Rate = Annotated[float, Field(ge=0, lt=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Bytes = Annotated[PositiveInt, BeforeValidator(parse_bytes)]


def _mesh(value: Any) -> Any:
    """`data=2,model=4` as the command line writes a mesh."""
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(",")]
    return {axis.strip(): size.strip() for axis, _, size in pairs}


MeshShape = Annotated[dict[str, PositiveInt], BeforeValidator(_mesh), Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Model(_Strict):
    """The decoder-only language model to train; see `sbpjax.training.models.DecoderLM`."""

    preset: Literal["tiny", "small", "base"] = Field(default="tiny", description="sizes to start from")
    vocab: Annotated[int, Field(ge=256)] = Field(default=256, description="number of tokens; bytes need 256")
    layers: PositiveInt = Field(description="number of transformer blocks")
    width: PositiveInt = Field(description="size of the residual stream")
    heads: PositiveInt = Field(description="attention heads; divides width into an even number of features")
    hidden: PositiveInt = Field(description="inner width of the MLP; 4 times the width by default")
    length: PositiveInt = Field(default=64, description="tokens in a sequence")
    dropout: Rate = Field(default=0.1, description="dropout rate, at least 0 and below 1")
    tied: bool = Field(default=False, description="whether the logits use the token embedding")
    remat: bool = Field(default=False, description="whether blocks are recomputed in the backward pass")
    scan: bool = Field(default=False, description="whether the blocks run as one scanned block")

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        sizes = {**PRESETS.get(str(given.get("preset", "tiny")), PRESETS["tiny"]), **given}
        width = sizes["width"]
        return {"hidden": 4 * width if isinstance(width, int) else width, **sizes}

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.width % (2 * self.heads):
            near = max(2 * self.heads, round(self.width / (2 * self.heads)) * 2 * self.heads)
            raise PydanticCustomError(
                "heads",
                "width {width} cannot be cut into {heads} heads of an even size; width {near} can",
                {"width": self.width, "heads": self.heads, "near": near},
            )
        return self


class Data(_Strict):
    """The text to train on, read as bytes."""

    source: str = Field(
        default="stdlib", description="`stdlib` (Python's own standard library), or the path of a file or folder"
    )
    pattern: str = Field(default="**/*.py", description="which files of a folder, as a glob")
    limit: Bytes | None = Field(default=None, description="how many bytes to read at most, such as 4MiB; null for all")


class Optimizer(_Strict):
    """AdamW behind a clipped gradient, its rate warmed up and then decayed by a cosine."""

    name: Literal["adamw"] = Field(default="adamw", description="which optimizer")
    learning_rate: NonNegativeFloat = Field(default=3e-3, description="the rate at its highest")
    warmup: Fraction = Field(default=0.1, description="the part of the steps in which the rate climbs from 0")
    final: Fraction = Field(default=0.1, description="the last rate, as a part of the highest")
    b1: Rate = Field(default=0.9, description="decay of the first moment")
    b2: Rate = Field(default=0.99, description="decay of the second moment")
    eps: Annotated[float, Field(gt=0)] = Field(default=1e-8, description="added to the root of the second moment")
    weight_decay: NonNegativeFloat = Field(default=0.1, description="decay of the weights, times the rate")
    clip_norm: Annotated[float, Field(gt=0)] | None = Field(
        default=1.0, description="largest norm of the gradient, or null"
    )


class Tight(_Strict):
    """A second plan, shown and not run: the same step where memory binds."""

    below: str = Field(default="dp", description="the strategy whose memory is the measure")
    fraction: Annotated[float, Field(gt=0, lt=1)] = Field(0.8, description="the limit, as a part of what `below` needs")


class Log(_Strict):
    """What is kept of the run."""

    file: str | None = Field(default=None, description="a file for one JSON line a step, or null")


class Recipe(_Strict):
    """A whole recipe."""

    name: str = Field(description="what the run is called")
    model: Model = Field(default_factory=lambda: Model.model_validate({}), description="the model")
    data: Data = Field(default=Data(), description="the text")
    optimizer: Optimizer = Field(default=Optimizer(), description="the optimizer")
    steps: PositiveInt = Field(description="how many steps to train")
    batch: PositiveInt = Field(description="sequences in a batch, over all devices")
    seed: NonNegativeInt = Field(default=0, description="fixes initial weights, dropout and the order of the data")
    strategy: str | dict[str, Any] = Field(
        default="auto", description="a strategy's name, its file, or a strategy written out"
    )
    cluster: str | None = Field(default=None, description="such as 8xcpu or 8xh100; null for the devices that JAX sees")
    mesh: MeshShape | None = Field(
        default=None, description="such as {data: 2, model: 4}; null lets the planner choose"
    )
    memory_limit: Bytes | None = Field(
        None, description="bytes of one device, such as 72GiB; null for 0.9 of the device"
    )
    emitter: Literal["shard_map", "jit"] = Field(default="shard_map", description="how the plan becomes a program")
    reference: bool = Field(
        default=False, description="whether to train once more on one device and compare the losses"
    )
    tight: Tight | None = Field(default=None, description="a second plan to show, for a tighter memory limit")
    log: Log = Field(default=Log(), description="what is kept of the run")
