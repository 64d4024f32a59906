"""One streaming pass over samples: every model side by side, each batch reduced at once to small columns."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from feal.errors import FealError
from feal.fileio import write_error
from feal.models import Network
from feal.selection.base import Columns, Models, Role, RoleModel, SelectionContext

Observer = Callable[[Tensor, Models, SelectionContext], dict[str, Tensor]]
ReadImages = Callable[[Sequence[str]], Tensor]


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
) -> Iterator[Columns]:
    """Yield the columns of the samples; wide ones lie in the scratch folder as long as the context lasts.

    Samples are visited in the order of their ids, as a network's last bits depend on the batch's make-up.

    Raises:
        FealError: a column holds NaN or infinity (names the sample).
    """
    ids = sorted(ids)
    if not observers:
        yield Columns(ids, {})
        return
    with _scratch_folder(scratch) as folder:
        values: dict[str, Tensor] = {}
        models: dict[Role, RoleModel] = {role: RoleModel(network.eval()) for role, network in networks.items()}
        with torch.no_grad():
            for start in range(0, len(ids), batch_size):
                batch = ids[start : start + batch_size]
                names = [f"sample {sample}" for sample in batch]
                columns = observe_batch(read(batch).to(device), names, observers, models, context)
                for name, column in columns.items():
                    if name not in values:
                        values[name] = _allocate(folder / name, (len(ids), *column.shape[1:]))
                    values[name][start : start + len(batch)] = column
        yield Columns(ids, values)


def observe_batch(
    images: Tensor, names: Sequence[str], observers: Sequence[Observer], models: Models, context: SelectionContext
) -> dict[str, Tensor]:
    """Return the columns of one batch on the CPU, scalars in float64 and wide ones in float32.

    Raises:
        FealError: a column has another length than `names`, or holds NaN or infinity (names the image).
    """
    columns: dict[str, Tensor] = {}
    for observe in observers:
        for name, column in observe(images, models, context).items():
            _check_column(name, column, names)
            columns[name] = column.detach().to("cpu", torch.float64 if column.dim() == 1 else torch.float32)
    for model in models.values():
        model.forget()
    return columns


def _check_column(name: str, column: Tensor, names: Sequence[str]) -> None:
    if column.dim() == 0 or len(column) != len(names):
        raise FealError(
            f"The column '{name}' has the shape {list(column.shape)} for {len(names)} samples: "
            "correct the strategy's `observe`."
        )
    is_finite = column.isfinite().reshape(len(column), -1).all(1)
    if not bool(is_finite.all()):
        image = names[int((~is_finite).nonzero()[0])]
        raise FealError(
            f"The column '{name}' of {image} is not finite: look at that image and at the models, "
            "or lower training.lr."
        )


def _allocate(path: Path, shape: tuple[int, ...]) -> Tensor:
    """Return an empty column: scalars in memory, wide ones on disk (a million rows of 1,280 numbers are 5 GB)."""
    if len(shape) == 1:
        return torch.empty(shape, dtype=torch.float64)
    try:
        # All at once: a disk that is full later would kill the process without a message.
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
