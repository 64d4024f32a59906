"""The model card: what a model is, what it was made of, how good it is, and what it is not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import yaml

from feal.data.fitting import Fitting
from feal.federation.statistics import primary_metric
from feal.inference.facts import Facts
from feal.settings import Transforms

_PIPELINE = {"classification": "image-classification", "segmentation": "image-segmentation"}
_NORMALISED = {
    "none": "",
    "imagenet": "; the model itself takes off ImageNet's mean and divides by its deviation",
    "maximum": "; the model itself divides each image by its maximum",
}
_SHAPE = {
    "resize": "stretched (bilinear)",
    "letterbox": "the long side resized to fit, centred on black",
    "centre": "the short side resized to fit, the middle cut out",
    "canvas": "centred on black, the side being {canvas} pixels of a picture",
}
_ACTIVATION = {
    "relu": "np.maximum(logits, 0)",
    "softplus": "np.logaddexp(logits, 0)",
    "exp": "np.exp(np.clip(logits, -10, 10))",
}


def model_card(facts: Facts, *, name: str, formats: Collection[str]) -> str:
    """The README.md of an exported model, with Hugging Face's front matter."""
    sections = [
        f"# {name}",
        _summary(facts),
        f"## Figures\n\n{_figures(facts)}",
        f"## How it was trained\n\n{_training(facts)}",
        f"## How to use it\n\n{_use(facts, formats)}",
        f"## Limits\n\n{_limits(facts)}",
        f"## Licence\n\n{_LICENCE}",
    ]
    return f"---\n{_front_matter(facts, name)}---\n\n" + "\n\n".join(sections) + "\n"


def _front_matter(facts: Facts, name: str) -> str:
    content: dict[str, Any] = {
        "library_name": "feal",
        "pipeline_tag": _PIPELINE[facts.task],
        "license": "unknown",
        "tags": ["federated-learning", "active-learning", "evidential-deep-learning", "uncertainty", facts.model],
        "datasets": [facts.origin.dataset],
        "metrics": list(facts.origin.metrics) or [primary_metric(facts.task)],
    }
    if facts.origin.metrics:
        content["model-index"] = [{"name": name, "results": _results(facts)}]
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=115)


def _results(facts: Facts) -> list[dict[str, Any]]:
    metric = primary_metric(facts.task)
    figures = facts.origin.metrics[metric]
    by_name = {**{f"site {site}": value for site, value in figures["sites"].items()}, "mean": figures["mean"]}
    return [
        {
            "task": {"type": _PIPELINE[facts.task]},
            "dataset": {"name": f"{facts.origin.dataset}, {which}", "type": facts.origin.dataset},
            "metrics": [{"type": metric, "value": value}],
        }
        for which, value in by_name.items()
        if value is not None
    ]


def _summary(facts: Facts) -> str:
    size, origin = facts.input, facts.origin
    sites = sorted(origin.labels)
    return (
        f"A {facts.model} for {facts.task} of images of {size.width} x {size.height} pixels (width x height) with "
        f"{size.channels} channel{'s' * (size.channels > 1)}, trained on `{origin.dataset}` at {len(sites)} "
        f"site{'s' * (len(sites) > 1)} ({', '.join(sites)}) whose images stayed there. It says how sure it is: "
        "beside each expected probability it gives an aleatoric uncertainty (the image is ambiguous) and an "
        "epistemic one (the model knows little of such images).\n\nClasses: "
        + ", ".join(f"{number} {name}" for number, name in enumerate(facts.classes))
        + "."
    )


def _figures(facts: Facts) -> str:
    origin = facts.origin
    names = list(origin.metrics)
    if not names:
        labels = ", ".join(f"{site} {count}" for site, count in sorted(origin.labels.items()))
        return f"Round {origin.round} was not evaluated before the export. Labels: {labels}."
    lines = [
        f"After round {origin.round}, on {_judged(origin.settings)}.",
        "",
        f"| site | labels | test images | {' | '.join(name.replace('_', ' ') for name in names)} |",
        f"|---|{'---:|' * (len(names) + 2)}",
    ]
    for site in sorted(origin.labels):
        numbers = [_number(origin.metrics[name]["sites"].get(site)) for name in names]
        lines.append(_line(site, origin.labels[site], origin.tested.get(site, 0), numbers))
    for row, key in (("mean over sites", "mean"), ("all test images pooled", "pooled")):
        numbers = [_number(origin.metrics[name][key]) for name in names]
        lines.append(_line(row, sum(origin.labels.values()), sum(origin.tested.values()), numbers))
    return "\n".join(lines)


def _judged(settings: Mapping[str, Any]) -> str:
    share = settings.get("validation")
    if share is None:
        return "every site's own test part"
    return f"a validation fold of {100 * share:g} % of every site's training part, **not on test images**"


def _line(site: str, labels: int, tested: int, numbers: list[str]) -> str:
    return f"| {site} | {labels} | {tested} | {' | '.join(numbers)} |"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _training(facts: Facts) -> str:
    settings, origin = facts.origin.settings, facts.origin
    training, evidence = settings["training"], facts.evidence
    begins = "the same initial weights" if settings["restart"] else "the weights of the round before"
    lines = [
        f"Federated averaging over {origin.round} active-learning round{'s' * (origin.round > 1)} of "
        f"{settings['communication_rounds']} communication rounds, each round from {begins}. Round 1 began with "
        f"{settings['initial']} labels; after each round the strategy `{settings['strategy']}` chose up to "
        f"{_budget(settings['budget'])} at every site to be labelled next.",
        "",
        f"- loss: {facts.loss}" + (_evidence(facts) if facts.loss == "evidential" else ""),
        f"- Adam, learning rate {training['lr']:g}, batches of {training['batch_size']}, "
        f"local epochs {training['local_epochs']}, weight decay {training['weight_decay']:g}, "
        f"schedule `{training['schedule']}`",
        *_start(training, settings.get("weights_digest")),
        *_transforms(facts.transforms),
        f"- class weight: {evidence.class_weight}; seed {settings['seed']}; feal {facts.feal}",
        "- all that shaped it: `origin.settings` in `model.json`",
    ]
    return "\n".join(lines)


def _start(training: Mapping[str, Any], weights: str | None) -> list[str]:
    """A line for the weights that were not drawn at random, and what was frozen of them; none without such."""
    if weights is None:
        return []
    part = training.get("trainable", "all")
    frozen = f"; only its {part} was trained, on {training['views']} views of each image" if part != "all" else ""
    return [f"- started from published or given weights (digest `{weights[:12]}`), whose terms apply too{frozen}"]


def _transforms(transforms: Transforms) -> list[str]:
    """A line for what was done to training images; none where nothing was."""
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


def _evidence(facts: Facts) -> str:
    evidence = facts.evidence
    alpha = f"({evidence.activation}(z) + 1)^2" if evidence.squared else f"{evidence.activation}(z) + 1"
    return f", Dirichlet alpha = {alpha}, regulariser {evidence.lambda_:g}, annealing {evidence.annealing}"


def _use(facts: Facts, formats: Collection[str]) -> str:
    parts = [_FEAL.format(**_sizes(facts))]
    if "torchscript" in formats:
        parts.append(_TORCHSCRIPT.format(**_sizes(facts)))
    if "onnx" in formats:
        parts.append(_ONNX.format(**_sizes(facts)))
    if formats:
        parts.append(_UNCERTAINTY.format(**_sizes(facts)))
    return "\n\n".join(parts)


def _limits(facts: Facts) -> str:
    return _LIMITS if facts.loss == "evidential" else f"{_LIMITS}\n{_WITHOUT_EVIDENCE.format(loss=facts.loss)}"


def _sizes(facts: Facts) -> Mapping[str, str]:
    size = facts.input
    colour = {1: "grey", 3: "RGB"}.get(size.channels, f"{size.channels} channels")
    evidence = _ACTIVATION[facts.evidence.activation]
    return {
        "version": facts.feal,
        "shape": f"{size.channels}, {size.height}, {size.width}",
        "steps": f"{colour}, {size.width} x {size.height} pixels in width x height ({_fitted(size.fitting)}), "
        + (f"divided by {size.scale:.0f} ({size.dtype})" if size.scale else f"{size.dtype} values as they are")
        + _NORMALISED[facts.transforms.normalise],
        "alpha": f"({evidence} + 1) ** 2" if facts.evidence.squared else f"{evidence} + 1",
        "read": "alpha / S" if facts.loss == "evidential" else "softmax",
    }


def _fitted(fitting: Fitting | None) -> str:
    """How a picture of any size gets the network's."""
    if fitting is None:
        return "stretched, bicubic"
    parts = [_SHAPE[fitting.shape].format(canvas=fitting.canvas)]
    if fitting.clip is not None:
        parts.insert(0, f"clipped at {100 * fitting.clip:g} % of its pixels and stretched over 16 bits")
    if fitting.colour is not None:
        parts.append("colours as under white light (shades of grey)")
    return "; ".join(parts)


_FEAL = """With feal {version}, in this folder:

```
feal predict . --images ../my-pictures --out ../my-predictions
```

Or from Python, with float32 images [n, channels, height, width], here [n, {shape}] ({steps}):

```python
import torch
from feal.inference import open_trained

images = torch.rand(2, {shape})
said = open_trained(".").predict(images)
print(said.prediction, said.probability, said.aleatoric, said.epistemic)
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

_LICENCE = "Not chosen yet: the owners of the model and of the images decide, and write it here and at the top."

_WITHOUT_EVIDENCE = """- It was trained with the {loss} loss, which does not teach evidence: its probabilities are
  a softmax, and its uncertainties, read from the same logits, order images at best."""

_LIMITS = """- Not a medical device: nobody has certified it, and no diagnosis or treatment may rest on it.
- The uncertainties mean something for images like those of the sites above. An image of another kind may get a
  confident wrong answer; compare a new centre's uncertainties with those of the sites before trusting them.
- Figures from few test images are rough, and they say nothing about centres that took no part.
- Weights are learned from patients' images and may reveal traits of them: share them as the sites have agreed."""
