"""A site's networks: from weights on the wire or on its disk, or trained for a strategy that wants such."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from feal.data import PreparedSet
from feal.federation.learning import Learner
from feal.federation.querying import roles_of
from feal.federation.store import Closed, Memory, TensorFile
from feal.files import read_tensors, write_tensors
from feal.models import Network, build_model
from feal.randomness import Address
from feal.selection import Role
from feal.settings import Settings

Weights = Mapping[str, torch.Tensor]

PREVIOUS: frozenset[Role] = frozenset({"global_previous", "local_previous"})
EARLIER: frozenset[Role] = PREVIOUS | {"initial", "local_only"}
"""Roles that need the weights which the run began with."""


class Cast(Mapping[Role, Network]):
    """Networks by role, each made when it is first asked for: some take a training of their own."""

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


class SiteNetworks:
    """Builds the networks of one message, from what came with it and what the site remembers."""

    def __init__(
        self, data: PreparedSet, *, folder: Path, settings: Settings, memory: Memory, device: torch.device
    ) -> None:
        self._data = data
        self._folder = folder
        self._settings = settings
        self._memory = memory
        self._device = device

    def build(self, role: Role, weights: Weights) -> Network:
        """The network of a role with these weights."""
        network = build_model(
            self._settings.model,
            task=self._data.task,
            classes=len(self._data.classes),
            channels=self._data.channels,
            height=self._data.height,
            width=self._data.width,
            part=self._settings.training.trainable,
            weights=weights,
            keep=role,
        )
        return network.to(self._device)

    def cast(
        self, round_: int, weights: Weights, *, learner: Callable[[], Learner], address: Address
    ) -> Mapping[Role, Network]:
        """The models of a round that ended with these global weights, and those a strategy may want beside them.

        Args:
            round_: the active-learning round.
            weights: of its global model.
            learner: makes what trains on the site's labels.
            address: of the message; what is trained here draws from addresses beside it.
        """
        before, initial, local = self._memory.before(round_), self._memory.initial, self._memory.local
        stored: dict[Role, TensorFile | None] = {
            "initial": initial,
            "global_previous": before.global_ if before else initial,
            "local_previous": before.local if before else initial,
            "local": local,
        }
        makers: dict[Role, Callable[[], Network]] = {
            "global": partial(self.build, "global", weights),
            "local": partial(self.build, "global", weights),
            "finetuned": lambda: learner().finetune(
                self.build("finetuned", weights),
                generator=replace(address, purpose="finetune").generator(),
                transforms=replace(address, purpose="finetune transforms").generator(),
            ),
            **{role: partial(self._stored, role, file) for role, file in stored.items() if file is not None},
        }
        if initial is not None:
            makers["local_only"] = lambda: learner().learn_alone(
                self._stored("local_only", initial),
                generator=replace(address, purpose="learn alone").generator(),
                transforms=replace(address, purpose="learn alone transforms").generator(),
            )
        return Cast(makers)

    def previous(self, round_: int) -> Literal["own", "initial", "none"]:
        """Which weights stand for the round before, where the strategy looks at these."""
        if not self._looks_back():
            return "none"
        return "own" if self._memory.before(round_) else "initial"

    def closed(self, round_: int, weights: Weights, *, key: str) -> Closed | None:
        """The round's models for the next selection, where the strategy looks back at them."""
        if not self._looks_back():
            return None
        global_ = self.write(f"global-{key}", weights)
        return Closed(round_, global_, self._memory.local or global_)

    def moments(self, round_: int) -> dict[str, torch.Tensor] | None:
        """Adam's state of the communication round before, if that was in the same active-learning round."""
        file = self._memory.optimizer
        return self._read(file) if file is not None and self._memory.optimizer_round == round_ else None

    def write(self, name: str, tensors: Weights) -> TensorFile:
        """Write weights to the site's disk; they count once a commit refers to them."""
        path = f"models/{name}.safetensors"
        return TensorFile(path, write_tensors(self._folder / path, tensors))

    def _looks_back(self) -> bool:
        return bool(PREVIOUS & roles_of(self._settings))

    def _stored(self, role: Role, file: TensorFile) -> Network:
        return self.build(role, self._read(file))

    def _read(self, file: TensorFile) -> dict[str, torch.Tensor]:
        return read_tensors(self._folder / file.name, sha256=file.sha256)
