"""The model card of an export: what the model is, how it was trained, how good it is, and its limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import yaml

from feal.data.resize import Fitting
from feal.evidential import build_loss, evidential_reading
from feal.inference.model import ModelInfo
from feal.metrics import primary_metric
from feal.metrics.registry import title_of
from feal.settings import Transforms

_PIPELINE = {"classification": "image-classification", "segmentation": "image-segmentation"}
_NORMALISED = {
    "none": "",
    "imagenet": "; the model itself subtracts ImageNet's mean and divides by its standard deviation",
    "maximum": "; the model itself divides each image by its maximum",
}
_SHAPE = {
    "resize": "stretched (bilinear)",
    "letterbox": "the long side resized to fit, centred on black",
    "centre": "the short side resized to fit, the middle cut out",
    "canvas": "centred on black, the side being {canvas} pixels of the file",
}
_TAGS = ("federated-learning", "active-learning", "evidential-deep-learning", "uncertainty")
_INITIAL = {"random": "random", "dataset": "given"}
_ACTIVATION = {
    "relu": "np.maximum(logits, 0)",
    "softplus": "np.logaddexp(logits, 0)",
    "exp": "np.exp(np.clip(logits, -10, 10))",
}


def render_model_card(info: ModelInfo, *, name: str, formats: Collection[str]) -> str:
    """Return the README.md of an exported model, with Hugging Face's front matter."""
    sections = [
        f"# {name}",
        _summary(info),
        f"## Metrics\n\n{_metrics(info)}",
        f"## How it was trained\n\n{_training(info)}",
        f"## How to use it\n\n{_use(info, formats)}",
        f"## Limits\n\n{_limits(info)}",
        f"## Licence\n\n{_LICENCE}",
    ]
    return f"---\n{_front_matter(info, name)}---\n\n" + "\n\n".join(sections) + "\n"


def _front_matter(info: ModelInfo, name: str) -> str:
    content: dict[str, Any] = {
        "library_name": "feal",
        "pipeline_tag": _PIPELINE[info.task],
        "license": "unknown",
        "tags": [
            "federated-learning",
            "active-learning",
            "evidential-deep-learning",
            "uncertainty",
            info.model.name,
        ],
        "datasets": [info.origin.dataset],
        "metrics": list(info.origin.metrics) or [primary_metric(info.task)],
    }
    if info.origin.metrics:
        content["model-index"] = [{"name": name, "results": _results(info)}]
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=115)


def _results(info: ModelInfo) -> list[dict[str, Any]]:
    metric = primary_metric(info.task)
    values = info.origin.metrics[metric]
    by_name = {**{f"site {site}": value for site, value in values.sites.items()}, "mean": values.mean}
    return [
        {
            "task": {"type": _PIPELINE[info.task]},
            "dataset": {"name": f"{info.origin.dataset}, {which}", "type": info.origin.dataset},
            "metrics": [{"type": metric, "value": value}],
        }
        for which, value in by_name.items()
        if value is not None
    ]


def _summary(info: ModelInfo) -> str:
    size, origin = info.input, info.origin
    sites = sorted(origin.labels)
    return (
        f"A {info.model.name} for {info.task} of images of {size.width} x {size.height} pixels "
        f"(width x height) with {size.channels} channel{'s' * (size.channels > 1)}, trained on "
        f"`{origin.dataset}` at {len(sites)} site{'s' * (len(sites) > 1)} ({', '.join(sites)}) "
        "whose images stayed there. Besides each expected probability it gives its uncertainty: an aleatoric one "
        "(the image is ambiguous) and an epistemic one (the model knows little of such images).\n\nClasses: "
        + ", ".join(f"{number} {name}" for number, name in enumerate(info.classes))
        + "."
    )


def _metrics(info: ModelInfo) -> str:
    origin = info.origin
    names = list(origin.metrics)
    if not names:
        labels = ", ".join(f"{site} {count}" for site, count in sorted(origin.labels.items()))
        return f"Round {origin.round} was not evaluated before the export. Labels: {labels}."
    lines = [
        f"After round {origin.round}, on {_evaluated_on(origin.settings)}.",
        "",
        f"| site | labels | test images | {' | '.join(title_of(name) for name in names)} |",
        f"|---|{'---:|' * (len(names) + 2)}",
    ]
    for site in sorted(origin.labels):
        numbers = [_number(origin.metrics[name].sites.get(site)) for name in names]
        lines.append(_line(site, origin.labels[site], origin.tested.get(site, 0), numbers))
    overall = {
        "mean over sites": [origin.metrics[name].mean for name in names],
        "all test images pooled": [origin.metrics[name].pooled for name in names],
    }
    for row, values in overall.items():
        numbers = [_number(value) for value in values]
        lines.append(_line(row, sum(origin.labels.values()), sum(origin.tested.values()), numbers))
    return "\n".join(lines)


def _evaluated_on(settings: Mapping[str, Any]) -> str:
    share = settings.get("validation")
    if share is None:
        return "the test images of every site"
    return f"a validation split of {100 * share:g} % of every site's training images, **not on test images**"


def _line(site: str, labels: int, tested: int, numbers: list[str]) -> str:
    return f"| {site} | {labels} | {tested} | {' | '.join(numbers)} |"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _training(info: ModelInfo) -> str:
    settings, origin = info.origin.settings, info.origin
    training, weight = settings["training"], info.loss.params.get("class_weight", "none")
    start = "the same initial weights" if settings["restart"] else "the weights of the round before"
    lines = [
        f"Federated averaging over {origin.round} active-learning round{'s' * (origin.round > 1)} of "
        f"{settings['communication_rounds']} communication rounds, each round from {start}. Round 1 started with "
        f"{_INITIAL[settings['initial_labels']]} labels; after each round the strategy "
        f"`{settings['strategy']['name']}` selected up to {_budget(settings['budget'])} at every "
        "site to be labelled next.",
        "",
        f"- loss: {info.loss.name}" + (_evidence(info) if info.loss.name == "evidential" else ""),
        f"- Adam, learning rate {training['lr']:g}, batches of {training['batch_size']}, "
        f"local epochs {training['local_epochs']}, weight decay {training['weight_decay']:g}, "
        f"schedule `{training['schedule']}`",
        *_start(training, settings.get("weights_digest")),
        *_transforms(info.transforms),
        f"- class weight: {weight}; seed {settings['seed']}; feal {info.feal}",
        "- all settings: `origin.settings` in `model.json`",
    ]
    return "\n".join(lines)


def _start(training: Mapping[str, Any], weights: str | None) -> list[str]:
    """Return a line about initial weights that were not random, and which of them were frozen; none without."""
    if weights is None:
        return []
    part = training.get("trainable", "all")
    frozen = f"; only its {part} was trained, on {training['views']} views of each image" if part != "all" else ""
    return [f"- started from pretrained weights (digest `{weights[:12]}`), whose licence applies too{frozen}"]


def _transforms(transforms: Transforms) -> list[str]:
    """Return a line about the augmentation of training images; none without."""
    amounts = (("rotation", "degrees"), ("brightness", "of it"), ("contrast", "of it"))
    extents = [(name, getattr(transforms, name), unit) for name, unit in amounts]
    done = [f"{name} +-{extent:g} {unit}" for name, extent, unit in extents if extent]
    done += ["flips"] if transforms.flips else []
    parts = [f"{', '.join(done)}, each with probability {transforms.probability:g}"] if done else []
    if transforms.crop:
        parts.append(f"crops of {transforms.crop} x {transforms.crop} ({transforms.crop_rule})")
    return [f"- training images: {'; '.join(parts)}"] if parts else []


def _budget(budget: float) -> str:
    return f"{budget} images" if isinstance(budget, int) else f"{100 * budget:g} % of the images"


def _evidence(info: ModelInfo) -> str:
    loss = evidential_reading(build_loss(info.loss))
    params = loss.params
    alpha = f"({params.activation}(z) + 1)^2" if loss.is_squared(info.task) else f"{params.activation}(z) + 1"
    return f", Dirichlet alpha = {alpha}, regulariser {params.lambda_:g}, annealing {params.annealing}"


def _use(info: ModelInfo, formats: Collection[str]) -> str:
    parts = [_FEAL.format(**_sizes(info))]
    if "torchscript" in formats:
        parts.append(_TORCHSCRIPT.format(**_sizes(info)))
    if "onnx" in formats:
        parts.append(_ONNX.format(**_sizes(info)))
    if formats:
        parts.append(_UNCERTAINTY.format(**_sizes(info)))
    return "\n\n".join(parts)


def _limits(info: ModelInfo) -> str:
    return (
        _LIMITS
        if info.loss.name == "evidential"
        else f"{_LIMITS}\n{_WITHOUT_EVIDENCE.format(loss=info.loss.name)}"
    )


def _sizes(info: ModelInfo) -> Mapping[str, str]:
    size = info.input
    colour = {1: "grey", 3: "RGB"}.get(size.channels, f"{size.channels} channels")
    loss = evidential_reading(build_loss(info.loss))
    evidence = _ACTIVATION[loss.params.activation]
    return {
        "version": info.feal,
        "shape": f"{size.channels}, {size.height}, {size.width}",
        "steps": f"{colour}, {size.width} x {size.height} pixels in width x height "
        f"({_describe_fitting(size.fitting)}), "
        + (f"divided by {size.scale:.0f} ({size.dtype})" if size.scale else f"{size.dtype} values as they are")
        + _NORMALISED[info.transforms.normalise],
        "alpha": f"({evidence} + 1) ** 2" if loss.is_squared(info.task) else f"{evidence} + 1",
        "read": "alpha / S" if info.loss.name == "evidential" else "softmax",
    }


def _describe_fitting(fitting: Fitting | None) -> str:
    """Return how an image of any size is fitted to the network's."""
    if fitting is None:
        return "stretched, bicubic"
    parts = [_SHAPE[fitting.shape].format(canvas=fitting.canvas)]
    if fitting.clip is not None:
        parts.insert(0, f"clipped at {100 * fitting.clip:g} % of its pixels and stretched over 16 bits")
    if fitting.colour is not None:
        parts.append("colours as under white light (shades of grey)")
    return "; ".join(parts)


_FEAL = """With feal {version}, in this directory:

```
feal predict . --images ../my-images --out ../my-predictions
```

Or from Python, with float32 images [n, channels, height, width], here [n, {shape}] ({steps}):

```python
import torch
from feal.inference import load_model

images = torch.rand(2, {shape})
predicted = load_model(".").predict(images)
print(predicted.prediction, predicted.probability, predicted.aleatoric, predicted.epistemic)
```"""

_TORCHSCRIPT = """Without feal, as TorchScript (any number of images, that one size):

```python
import torch

logits, probability = torch.jit.load("model.torchscript")(torch.rand(2, {shape}))
```"""

_ONNX = """As ONNX, inputs and outputs by name:

```python
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
images = np.random.default_rng(0).random((2, {shape}), dtype=np.float32)
logits, probability = session.run(["logits", "probability"], {{"images": images}})
```"""

_UNCERTAINTY = """These graphs give logits and the expected probability ({read}). The uncertainties need digamma,
which ONNX lacks; from the logits, in float64:

```python
import numpy as np
from scipy.special import digamma, gammaln

logits = np.asarray(logits, dtype=np.float64)
alpha = {alpha}
total = alpha.sum(1, keepdims=True)
aleatoric = (alpha / total * (digamma(total + 1) - digamma(alpha + 1))).sum(1)
epistemic = gammaln(alpha).sum(1) - gammaln(total[:, 0]) - ((alpha - 1) * (digamma(alpha) - digamma(total))).sum(1)
```"""

_LICENCE = "Not chosen yet: the owners of the model and the images decide, and enter it here and at the top."

_WITHOUT_EVIDENCE = """- It was trained with the {loss} loss, which does not fit evidence: its probabilities are
  a softmax, and its uncertainties, computed from the same logits, can at best rank images."""

_LIMITS = """- Not a medical device: it is not certified, and must not be used for diagnosis or treatment.
- The uncertainties are meaningful for images like those of the sites above. An image of another kind may get a
  confident wrong prediction; compare a new site's uncertainties with those of the sites before relying on them.
- Metrics from few test images are imprecise, and do not carry over to sites that did not take part.
- Weights are learned from patients' images and may reveal something about them: share them as the sites agreed."""
