"""Learning from a site's labelled samples: in a communication round, and for models that a strategy wants."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from feal.data import PreparedSite
from feal.federation.inputs import Inputs
from feal.federation.labelled import Targets
from feal.federation.objective import objective
from feal.federation.store import Store
from feal.federation.training import Trained, learning_rate, train
from feal.models import Network
from feal.selection import Context
from feal.settings import Settings

MOST_EPOCHS, ENOUGH = 50, 0.99
"""When a model that learns at one site alone has learned enough: epochs, or training accuracy."""


class Learner:
    """Trains networks on all labelled samples of a site, under its settings."""

    def __init__(
        self,
        site: PreparedSite,
        *,
        inputs: Inputs,
        store: Store,
        settings: Settings,
        context: Context,
        device: torch.device,
    ) -> None:
        self._inputs = inputs
        self._settings = settings
        self._context = context
        self._device = device
        self._labelled = store.labelled()
        self._rows: NDArray[np.int64] = site.rows(self._labelled)
        self._targets = Targets(store, context.task, self._labelled)

    def __len__(self) -> int:
        return len(self._labelled)

    def learn(
        self,
        network: Network,
        *,
        step: int,
        epochs: int,
        generator: torch.Generator,
        transforms: torch.Generator,
        moments: Mapping[str, torch.Tensor] | None = None,
        lr: float | None = None,
    ) -> Trained:
        """Train a network as in communication round `step`; it is changed.

        `generator` decides the order of samples, `transforms` what is done to their images.
        """
        training = self._settings.training.model_copy(update={"local_epochs": epochs})
        return train(
            network,
            read=partial(self._examples, transforms),
            samples=len(self),
            objective=objective(
                self._settings,
                task=self._context.task,
                site_counts=self._context.site_counts,
                total_counts=self._context.total_counts,
            ),
            training=training,
            lr=lr or learning_rate(training, step=step, steps=self._settings.communication_rounds),
            moments=moments,
            step=step,
            generator=generator,
            device=self._device,
        )

    def finetune(self, network: Network, *, generator: torch.Generator, transforms: torch.Generator) -> Network:
        """One epoch more, as in the last communication round."""
        if self._labelled:
            last = self._settings.communication_rounds - 1
            self.learn(network, step=last, epochs=1, generator=generator, transforms=transforms)
        return network

    def learn_alone(self, network: Network, *, generator: torch.Generator, transforms: torch.Generator) -> Network:
        """At most 50 epochs, until 99 % of the labelled samples (or pixels) are told right."""
        moments: Mapping[str, torch.Tensor] | None = None
        for epoch in range(MOST_EPOCHS if self._labelled else 0):
            trained = self.learn(
                network,
                step=epoch,
                epochs=1,
                generator=generator,
                transforms=transforms,
                moments=moments,
                lr=self._settings.training.lr,
            )
            moments = trained.moments
            if self._accuracy(network) >= ENOUGH:
                break
        return network

    @torch.no_grad()
    def _accuracy(self, network: Network) -> float:
        network.eval()
        right = total = 0
        for part in torch.arange(len(self)).split(self._settings.selection.batch_size):
            told = network(self._inputs.seen(self._rows[part.numpy()])).argmax(1).cpu()
            wanted = self._targets.of(part)
            right += int((told == wanted).sum())
            total += wanted.numel()
        return right / total

    def _examples(self, generator: torch.Generator, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._inputs.trained_on(self._rows[batch.numpy()], self._targets.of(batch), generator)
