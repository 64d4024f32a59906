"""Provide a site's networks: from weights in a message or on disk, or trained for a strategy that needs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial

import torch

from feal.data import PreparedSet
from feal.federation.site.training import Trainer
from feal.fileio import read_tensors, write_tensors
from feal.models import Network, build_model
from feal.rng import Address
from feal.rundir.layout import SiteDirectory
from feal.rundir.site_store import SiteState, TensorFile
from feal.selection import Role
from feal.settings import Component, Task, Trainable

Tensors = Mapping[str, torch.Tensor]


class LazyModels(Mapping[Role, Network]):
    """Networks by role, each made on first access: some have to be trained."""

    def __init__(self, makers: Mapping[Role, Callable[[], Network]]) -> None:
        self._makers = makers
        self._made: dict[Role, Network] = {}

    def __getitem__(self, role: Role) -> Network:
        if role not in self._made:
            self._made[role] = self._makers[role]()
        return self._made[role]

    def __iter__(self) -> Iterator[Role]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


class SiteModels:
    """Build networks, and write and read their weights in the site's directory."""

    def __init__(
        self,
        directory: SiteDirectory,
        data: PreparedSet,
        *,
        model: Component,
        part: Trainable,
        device: torch.device,
    ) -> None:
        self._directory = directory
        shape = (data.task, len(data.classes), data.channels, data.height, data.width)
        self._network = (model.name, json.dumps(model.params), shape, part)
        self._device = device

    def build(self, role: Role, weights: Tensors) -> Network:
        """Return the network of a role with these weights."""
        network = _blank_network(role, *self._network)
        network.load_state_dict(weights)
        network.zero_grad()
        return network.to(self._device)

    def for_selection(
        self,
        state: SiteState,
        *,
        round_: int,
        weights: Tensors,
        trainer: Callable[[], Trainer],
        batch_size: int,
        address: Address,
    ) -> LazyModels:
        """Return the models at the end of a round: global, local, and those that a strategy may need besides.

        Args:
            state: what the site keeps from earlier messages.
            round_: the round.
            weights: of its global model.
            trainer: makes what trains on the site's labels.
            batch_size: samples in a batch of evaluation.
            address: of the message; models that are trained here draw from addresses beside it.
        """
        before, initial = state.before(round_), state.initial
        stored: dict[Role, TensorFile | None] = {
            "initial": initial,
            "global_previous": before.global_ if before else initial,
            "local_previous": before.local if before else initial,
            "local": state.local,
        }
        makers: dict[Role, Callable[[], Network]] = {
            "global": partial(self.build, "global", weights),
            "local": partial(self.build, "global", weights),
            "finetuned": lambda: trainer().finetune(
                self.build("finetuned", weights),
                order=replace(address, purpose="finetune").generator(),
                augment=replace(address, purpose="finetune transforms").generator(),
            ),
            **{role: partial(self._build_stored, role, file) for role, file in stored.items() if file is not None},
        }
        if initial is not None:
            makers["local_only"] = lambda: trainer().train_alone(
                self._build_stored("local_only", initial),
                order=replace(address, purpose="learn alone").generator(),
                augment=replace(address, purpose="learn alone transforms").generator(),
                batch_size=batch_size,
            )
        return LazyModels(makers)

    def write(self, name: str, tensors: Tensors) -> TensorFile:
        """Write tensors to the site's directory; they count once a commit refers to them."""
        path = self._directory.models / f"{name}.safetensors"
        return TensorFile(str(path.relative_to(self._directory.path)), write_tensors(path, tensors))

    def read(self, file: TensorFile) -> dict[str, torch.Tensor]:
        """Read tensors that the site's state refers to."""
        return read_tensors(self._directory.path / file.name, sha256=file.sha256)

    def _build_stored(self, role: Role, file: TensorFile) -> Network:
        return self.build(role, self.read(file))


@lru_cache(maxsize=8)
def _blank_network(
    role: Role, model: str, params: str, shape: tuple[Task, int, int, int, int], part: Trainable
) -> Network:
    """Return this process's network for a role, shared by all sites: to build one takes ten times longer."""
    del role
    task, classes, channels, height, width = shape
    with torch.random.fork_rng(devices=[]):
        return build_model(
            model,
            params=json.loads(params),
            task=task,
            classes=classes,
            channels=channels,
            height=height,
            width=width,
        ).keep_part(part)
