"""Describe in Markdown: the model card of an export, and the README of a directory of predictions."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from feal.data.resize import Fitting
from feal.evidential import build_loss, evidential_reading
from feal.fileio import render_template
from feal.inference.model import InputFormat, ModelInfo
from feal.metrics import primary_metric
from feal.metrics.registry import title_of
from feal.settings import Transforms

_TEMPLATES = Path(__file__).parent / "templates"
_PIPELINE = {"classification": "image-classification", "segmentation": "image-segmentation"}
_TAGS = ("federated-learning", "active-learning", "evidential-deep-learning", "uncertainty")
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
_ACTIVATION = {
    "relu": "np.maximum(logits, 0)",
    "softplus": "np.logaddexp(logits, 0)",
    "exp": "np.exp(np.clip(logits, -10, 10))",
}


def render_model_card(info: ModelInfo, *, name: str, formats: Collection[str]) -> str:
    """Return the README.md of an exported model, with Hugging Face's front matter."""
    settings, size = info.origin.settings, info.input
    loss = evidential_reading(build_loss(info.loss))
    return render_template(
        _TEMPLATES / "model_card.md",
        info=info,
        origin=info.origin,
        name=name,
        formats=formats,
        front_matter=_front_matter(info, name),
        size=size,
        settings=settings,
        training=settings["training"],
        evaluated_on=_evaluated_on(settings.get("validation")),
        budget=_describe_budget(settings["budget"]),
        augmentation=_describe_augmentation(info.transforms),
        shape=f"{size.channels}, {size.height}, {size.width}",
        steps=_describe_input(size) + _NORMALISED[info.transforms.normalise],
        loss=loss,
        is_evidential=info.loss.name == "evidential",
        is_squared=loss.is_squared(info.task),
        evidence=_ACTIVATION[loss.params.activation],
        titles=[title_of(metric, value.variant) for metric, value in info.origin.metrics.items()],
        decimals=lambda value: "-" if value is None else f"{value:.3f}",
    )


def render_predictions_readme(info: ModelInfo, *, images: int) -> str:
    """Return the README.md of a directory with the predictions of so many images."""
    return render_template(_TEMPLATES / "predictions.md", info=info, origin=info.origin, images=images)


def _front_matter(info: ModelInfo, name: str) -> str:
    origin, metric = info.origin, primary_metric(info.task)
    content: dict[str, Any] = {
        "library_name": "feal",
        "pipeline_tag": _PIPELINE[info.task],
        "license": "unknown",
        "tags": [*_TAGS, info.model.name],
        "datasets": [origin.dataset],
        "metrics": list(origin.metrics) or [metric],
    }
    if origin.metrics:
        values = origin.metrics[metric]
        by_name = {**{f"site {site}": value for site, value in values.sites.items()}, "mean": values.mean}
        results = [
            {
                "task": {"type": _PIPELINE[info.task]},
                "dataset": {"name": f"{origin.dataset}, {which}", "type": origin.dataset},
                "metrics": [{"type": metric, "value": value}],
            }
            for which, value in by_name.items()
            if value is not None
        ]
        content["model-index"] = [{"name": name, "results": results}]
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=115)


def _evaluated_on(validation: float | None) -> str:
    if validation is None:
        return "the test images of every site"
    return f"a validation split of {100 * validation:g} % of every site's training images, **not on test images**"


def _describe_budget(budget: float) -> str:
    return f"{budget} images" if isinstance(budget, int) else f"{100 * budget:g} % of the images"


def _describe_augmentation(transforms: Transforms) -> str:
    amounts: Mapping[str, str] = {"rotation": "degrees", "brightness": "of it", "contrast": "of it"}
    extents = {name: getattr(transforms, name) for name in amounts}
    done = [f"{name} +-{extent:g} {amounts[name]}" for name, extent in extents.items() if extent]
    done += ["flips"] if transforms.flips else []
    parts = [f"{', '.join(done)}, each with probability {transforms.probability:g}"] if done else []
    if transforms.crop:
        parts.append(f"crops of {transforms.crop} x {transforms.crop} ({transforms.crop_rule})")
    return "; ".join(parts)


def _describe_input(size: InputFormat) -> str:
    colour = {1: "grey", 3: "RGB"}.get(size.channels, f"{size.channels} channels")
    scale = f"divided by {size.scale:.0f} ({size.dtype})" if size.scale else f"{size.dtype} values as they are"
    fitting = _describe_fitting(size.fitting)
    return f"{colour}, {size.width} x {size.height} pixels in width x height ({fitting}), {scale}"


def _describe_fitting(fitting: Fitting | None) -> str:
    if fitting is None:
        return "stretched, bicubic"
    parts = [_SHAPE[fitting.shape].format(canvas=fitting.canvas)]
    if fitting.clip is not None:
        parts.insert(0, f"clipped at {100 * fitting.clip:g} % of its pixels and stretched over 16 bits")
    if fitting.colour is not None:
        parts.append("colours as under white light (shades of grey)")
    if fitting.margin is not None:
        share = f"{100 * fitting.margin:g} %"
        parts.append(f"with a margin of {share} of its side beyond each edge, reflected where the file ends")
    return "; ".join(parts)
