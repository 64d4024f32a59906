"""What a site's data must be for a run to begin."""

from __future__ import annotations

from pathlib import Path

from feal.annotation import ANNOTATORS
from feal.data import PreparedSite
from feal.data.transforms import check_transforms
from feal.errors import FealError
from feal.federation.messages import JoinReply
from feal.federation.querying import allowance
from feal.models import MODELS, check_source
from feal.selection import strategy_named
from feal.settings import Settings


def check_admission(site: PreparedSite, settings: Settings, *, folder: Path) -> None:
    """Refuse data that nothing can be learned from, before any work is done.

    Raises:
        FealError: no training sample, a budget that comes to no label, labels the annotator finds unusable, or a
            strategy or the weights of a frozen trunk that this machine does not have.
    """
    strategy_named(settings.strategy)
    if settings.training.trainable != "all":
        check_source(settings.model, settings.weights)
    samples = len(site.ids("train"))
    if samples == 0:
        raise FealError(f"Site {site.name} has no training sample: add some, or leave the site out.")
    if allowance(settings, samples=samples, asked=0) == 0:
        raise FealError(
            f"A budget of {settings.budget} of site {site.name}'s {samples} samples is no label at all: raise it."
        )
    annotator = ANNOTATORS.get(settings.annotator)(site, folder=folder)
    annotator.check(allow_single_class=settings.allow_single_class)


def check_images(settings: Settings, site: JoinReply) -> None:
    """Refuse transforms that do not go with the images, or images that the network, or its trunk, cannot take.

    Raises:
        FealError: one of these.
    """
    transforms = settings.transforms
    check_transforms(transforms, task=site.task, channels=site.channels, height=site.height, width=site.width)
    network = MODELS.get(settings.model)
    if transforms.crop:
        network.check_size(transforms.crop, transforms.crop)
    network.check_trunk(settings.training.trainable, height=site.height, width=site.width)
