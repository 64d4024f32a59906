"""What there is to know about a trained model besides its weights: the content of `model.json`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from feal.data.fitting import Fitting
from feal.settings import Evidence, Loss, Positive, Task, Transforms

FORMAT: Literal[1] = 1


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Input(_Part):
    """The images that the network takes."""

    channels: Positive
    height: Positive
    width: Positive
    dtype: Literal["uint8", "uint16", "float16"]
    """How the pixels were stored that it was trained on."""
    scale: float | None
    """What a stored pixel was divided by to lie in [0, 1]; none for float16, taken as it is."""
    fitting: Fitting | None = None
    """How pictures were fitted to that size; none where it was not noted: they are stretched, bicubic."""


class Evaluation(_Part):
    """How the run looked at its test images: the same again gives the same bits on the same kind of machine."""

    batch_size: Positive
    threads: Positive
    device: Literal["auto", "cpu", "cuda"]


class Origin(_Part):
    """The run and the round that the weights are from."""

    dataset: str
    round: Positive
    labels: dict[str, int]
    """Labels of each site that this round was trained on."""
    tested: dict[str, int]
    """Test images of each site; empty before the round's figures are known."""
    metrics: dict[str, Any]
    """Every figure as `summary.json` has it; empty before they are known."""
    settings: dict[str, Any]
    """The part of the run's configuration that shaped the model."""


class Facts(_Part):
    """Everything that it takes to rebuild a network, to prepare its input and to read its output."""

    format: Literal[1] = FORMAT
    feal: str
    model: str
    task: Task
    classes: Annotated[list[str], Field(min_length=2)]
    sha256: str
    """Of the weights' file."""
    input: Input
    transforms: Transforms = Transforms()
    """What the network did to its images in training, and does to every image it sees."""
    loss: Loss
    evidence: Evidence
    evaluation: Evaluation
    origin: Origin
