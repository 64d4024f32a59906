"""One streaming pass over samples: every model side by side, each batch reduced at once to small columns."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from feal.errors import FealError
from feal.fileio import write_error
from feal.models import Network
from feal.selection.base import Columns, Models, Role, RoleModel, SelectionContext

Observer = Callable[[torch.Tensor, Models, SelectionContext], dict[str, torch.Tensor]]
ReadImages = Callable[[Sequence[str]], torch.Tensor]


@contextmanager
def observe_samples(
    ids: Sequence[str],
    *,
    read: ReadImages,
    observers: Sequence[Observer],
    networks: Mapping[Role, Network],
    context: SelectionContext,
    batch_size: int,
    scratch: Path,
    device: torch.device,
    gradients: bool = False,
) -> Iterator[Columns]:
    """Columns of the samples, as long as the context lasts; wide ones lie in the scratch folder.

    Samples are visited in the order of their ids, whatever the caller's: a network's last bits depend on the
    batch's make-up.

    Raises:
        FealError: a column holds NaN or infinity (names the sample).
    """
    ids = sorted(ids)
    if not observers:
        yield Columns(ids, {})
        return
    with _scratch_folder(scratch) as folder:
        table = _Table(len(ids), folder)
        models: dict[Role, RoleModel] = {role: RoleModel(network.eval()) for role, network in networks.items()}
        with torch.set_grad_enabled(gradients):
            for start in range(0, len(ids), batch_size):
                batch = ids[start : start + batch_size]
                images = read(batch).to(device)
                for observe in observers:
                    table.put(start, batch, observe(images, models, context))
                for model in models.values():
                    model.forget()
        yield Columns(ids, table.values)


class _Table:
    """Columns under way: scalars in memory, wide ones on disk (a million rows of 1,280 numbers are 5 GB)."""

    def __init__(self, rows: int, folder: Path) -> None:
        self.values: dict[str, torch.Tensor] = {}
        self._rows = rows
        self._folder = folder

    def put(self, start: int, ids: Sequence[str], columns: Mapping[str, torch.Tensor]) -> None:
        for name, column in columns.items():
            if column.dim() == 0 or len(column) != len(ids):
                raise FealError(
                    f"The column '{name}' has the shape {list(column.shape)} for {len(ids)} samples: "
                    "mend the strategy's `observe`."
                )
            _check_finite(name, ids, column)
            if name not in self.values:
                self.values[name] = self._new(name, column)
            self.values[name][start : start + len(ids)] = column.detach().cpu()

    def _new(self, name: str, column: torch.Tensor) -> torch.Tensor:
        if column.dim() == 1:
            return torch.empty(self._rows, dtype=torch.float64)
        shape = (self._rows, *column.shape[1:])
        path = self._folder / name
        try:
            # All at once: a disk that is full later would kill the process without a word.
            with path.open("wb") as file:
                _reserve(file.fileno(), 4 * math.prod(shape))
        except OSError as error:
            raise write_error(path, error) from error
        return torch.from_numpy(np.memmap(path, dtype=np.float32, mode="r+", shape=shape))


def _reserve(file: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.ftruncate(file, size)


@contextmanager
def _scratch_folder(parent: Path) -> Iterator[Path]:
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = TemporaryDirectory(dir=parent)
    except OSError as error:
        raise write_error(parent, error) from error
    with folder as name:
        yield Path(name)


def _check_finite(name: str, ids: Sequence[str], column: torch.Tensor) -> None:
    finite = torch.isfinite(column).flatten(1).all(1) if column.dim() > 1 else torch.isfinite(column)
    if not bool(finite.all()):
        sample = ids[int((~finite).nonzero()[0])]
        raise FealError(
            f"The column '{name}' of sample {sample} is not finite: look at that image, or lower training.lr."
        )
