"""Read the features of a frozen encoder at a site: as it computes them, summed, and projected for the heads."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.backends import cpu

from feal.data import PreparedSet, PreparedSite
from feal.data.arrays import StoredArray
from feal.errors import FealError, ShareableError
from feal.federation.site.feature_cache import (
    ENGINES,
    CachedFeatures,
    derive_features,
    is_complete,
    locate_features,
    name_features,
    open_features,
    read_shape,
)
from feal.fileio import read_tensors, write_tensors
from feal.models import FrozenNetwork
from feal.models.encoders import Encoder, EncoderParams, hash_encoder
from feal.models.projection import FeatureSums, project, sum_features
from feal.settings import Task
from feal.tensors import Tensors, hash_tensors

_BLOCK = 256


@dataclass(frozen=True, kw_only=True)
class EncoderSource:
    """What determines an encoder's features besides the images."""

    params: EncoderParams
    task: Task
    digest: str
    """Of the encoder's weights."""
    threads: int
    device: torch.device
    views: int = 1

    @property
    def label(self) -> str:
        return f"{Path(self.params.encoder).stem}-{self.task}"

    @property
    def dtype(self) -> str:
        """Maps are kept in half precision: those of 10,000 images are 8 GB."""
        return "float32" if self.task == "classification" else "float16"

    def identify(self) -> list[object]:
        # Not the head, whose parameters may lie beside the encoder's.
        params = self.params.model_dump(mode="json", include=EncoderParams.model_fields.keys() - {"encoder"})
        libraries = [torch.__version__, *map(version, ("onnx", "onnxruntime"))]
        return [params, self.digest, self.task, self.threads, *libraries, cpu.get_cpu_capability()]

    def open(self, data: PreparedSet, *, size: object) -> tuple[Encoder, str]:
        del data, size
        return Encoder(self.params, task=self.task, threads=self.threads), ENGINES[0]


class FrozenFeatures:
    """The features of one site's images by one encoder, each step computed once and kept on the site's disk."""

    def __init__(
        self,
        data: PreparedSet,
        site: PreparedSite,
        params: FrozenNetwork.Params,
        *,
        threads: int,
        device: torch.device,
    ) -> None:
        self._data, self._site = data, site
        self.params = params
        self.digest = hash_encoder(params)
        self._source = EncoderSource(
            params=params, task=data.task, digest=self.digest, threads=threads, device=device
        )

    def count(self) -> int:
        """Return how many numbers the encoder gives an image, or a pixel of its maps.

        Raises:
            FealError: the encoder cannot be used.
        """
        path = locate_features(self._data, f"{name_features(self._data, self._site, self._source)}.npy")
        shape = read_shape(path)[1:] if is_complete(path) else self._source.open(self._data, size=())[0].shape
        return int(shape[0])

    def sum(self) -> FeatureSums:
        """Return the sums over all images of the site, with no regard to labels or split."""
        raw = self._open()
        path = raw.features.path.with_suffix(".sums.safetensors")
        if path.exists():
            try:
                return FeatureSums.from_tensors(read_tensors(path))
            except (FealError, KeyError):
                path.unlink(missing_ok=True)  # a copy that is damaged is computed again
        total: FeatureSums | None = None
        for start in range(0, len(raw.features.array), _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, len(raw.features.array)))
            part = sum_features(torch.from_numpy(raw.features.read(rows)).float())
            total = part if total is None else total + part
        assert total is not None
        write_tensors(path, total.tensors())
        return total

    def project(self, projection: Tensors) -> CachedFeatures:
        """Return the projected features, float32 [n, D] or float16 maps [n, D, h, w]."""
        raw = self._open()
        width = raw.features.array.shape[1]
        if projection["mean"].shape != (width,):
            raise ShareableError(
                f"Site {self._site.name} was sent a projection of {projection['mean'].numel()} features, and its "
                f"encoder gives {width}: use the same encoder at every site."
            )

        def derive(rows: NDArray[Any]) -> NDArray[Any]:
            projected: NDArray[Any] = project(torch.from_numpy(rows).float(), projection).numpy()
            return projected.astype(self._source.dtype)

        digest = hash_tensors(projection)[:16]
        path = derive_features(self._data, raw, digest=digest, derive=derive, dtype=self._source.dtype)
        stored = StoredArray(path, shape=read_shape(path), kinds=(self._source.dtype,))
        return CachedFeatures(stored, views=1, device=self._source.device)

    def _open(self) -> CachedFeatures:
        return open_features(
            self._data, self._site, self._source, read=lambda rows: self._site.read(rows).to(self._source.device)
        )
