"""Keep a site's state after a message, and the files of tensors that it refers to."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from feal.errors import FealError
from feal.fileio import overwrite_tensors, read_tensors, sync_directory
from feal.rundir.layout import SiteDirectory

if TYPE_CHECKING:
    import torch

    from feal.tensors import Tensors

_WEIGHTS, _MOMENTS = "weights/", "moments/"
"""How names of tensors in a model's file begin: those of the network, and Adam's."""


@dataclass(frozen=True)
class TensorFile:
    """A file of tensors: its name in the site's folder of models, and its checksum."""

    name: str
    sha256: str


@dataclass(frozen=True)
class RoundModels:
    """The models at the end of a round."""

    round: int
    global_: TensorFile
    local: TensorFile


@dataclass(frozen=True, kw_only=True)
class SiteState:
    """What a site keeps from one message to the next."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    key: str = ""
    position: tuple[int, int, int] = (-1, 0, 0)
    """Round, whether it is being closed, communication round: a later message has a larger position."""
    reply: str = ""
    """Fields of the last reply, in case the same message comes again."""
    local: TensorFile | None = None
    """The local model after the last training, with Adam's moments."""
    local_round: int = 0
    """The round of that training."""
    sends_local: bool = False
    """Whether the last reply carries the weights of the local model."""
    sums: TensorFile | None = None
    """The sums of features that the last reply carries in place of weights, under `model=frozen`."""
    initial: TensorFile | None = None
    """The initial weights of the run, for strategies that need them."""
    closed: tuple[RoundModels, ...] = ()
    """Models of the last two rounds, for strategies that need them; two, as the last may be closed again."""

    @classmethod
    def from_json(cls, content: str, *, path: Path) -> SiteState:
        """Read a state that `path` holds.

        Raises:
            FealError: another version wrote it.
        """
        try:
            return _STATE.validate_json(content)
        except ValidationError as error:
            raise FealError(
                f"{path} was written by another version of feal: resume the run with that one, or start a new run."
            ) from error

    def to_json(self) -> str:
        """Return the state as text."""
        return _STATE.dump_json(self).decode()

    def before(self, round_: int) -> RoundModels | None:
        """Return the models of the latest round before a round."""
        return next((models for models in reversed(self.closed) if models.round < round_), None)

    def with_closed(self, models: RoundModels) -> SiteState:
        """Add a round's models, dropping those that are no longer needed."""
        before = self.before(models.round)
        return replace(self, closed=(before, models) if before else (models,))

    def files(self) -> set[str]:
        """Return the names of all files that the state refers to."""
        ends = [file for models in self.closed for file in (models.global_, models.local)]
        return {file.name for file in (self.local, self.sums, self.initial, *ends) if file is not None}


_STATE = TypeAdapter(SiteState)


class ModelFiles:
    """The models in a site's directory. Tensors that are read are valid until the next message."""

    def __init__(self, directory: SiteDirectory) -> None:
        self._directory = directory
        self._written: dict[str, tuple[str, tuple[int, ...]]] = {}
        """What this process wrote and whose names are durable: checksum and stamp by name."""

    def write(
        self, kind: str, weights: Tensors, *, state: SiteState, moments: Tensors | None = None
    ) -> TensorFile:
        """Write a model durably, with Adam's moments if given, to a file that the committed `state` does not use.

        It counts once a state that refers to it is committed; until then a kill may leave anything in it.
        """
        used = state.files()
        name = next(name for number in count() if (name := f"{kind}-{number}.safetensors") not in used)
        path = self._directory.models / name
        parts = {_WEIGHTS: weights, _MOMENTS: moments or {}}
        tensors = {prefix + key: tensor for prefix, part in parts.items() for key, tensor in part.items()}
        is_known = path.exists() and name in self._written
        file = TensorFile(name, overwrite_tensors(path, tensors))
        if not is_known:
            sync_directory(path.parent)
        self._written[name] = (file.sha256, _stamp(path))
        return file

    def read_weights(self, file: TensorFile) -> dict[str, torch.Tensor]:
        """Read the weights of a model that the state refers to."""
        return self._read(file, _WEIGHTS)

    def read_moments(self, file: TensorFile) -> dict[str, torch.Tensor]:
        """Read Adam's moments that were written with a model."""
        return self._read(file, _MOMENTS)

    def remove_unused(self, state: SiteState) -> None:
        """Delete models that the last commit does not refer to, and what a kill left half-done."""
        if not state.key:
            return  # an empty database may have replaced one that referred to these files
        used = state.files()
        for path in self._directory.models.glob("*"):
            if path.name not in used:
                self._written.pop(path.name, None)
                path.unlink(missing_ok=True)
        shutil.rmtree(self._directory.scratch, ignore_errors=True)

    def _read(self, file: TensorFile, prefix: str) -> dict[str, torch.Tensor]:
        path = self._directory.models / file.name
        # Bytes that this process wrote, to a file that nobody changed since, need not be hashed again.
        is_own = path.exists() and self._written.get(file.name) == (file.sha256, _stamp(path))
        return read_tensors(path, sha256=None if is_own else file.sha256, prefix=prefix)


def _stamp(path: Path) -> tuple[int, ...]:
    """Return what changes whenever a file is replaced or written to."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
