"""Locate the prepared folder of a data set, by its name and parameters."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from feal.data.manifest import MANIFEST_FILE, is_name, read_manifest
from feal.data.prepare.base import DatasetSource, SplitRule, create_source
from feal.data.prepare.datasets import DATASET_SOURCES
from feal.data.prepare.pipeline import prepare_dataset
from feal.data.synthetic.base import SyntheticDataset
from feal.data.synthetic.lesions import SyntheticLesions
from feal.data.synthetic.polyps import SyntheticPolyps
from feal.errors import FealError, unknown_name_error
from feal.fileio import lock_file, user_cache
from feal.plugins import find_class, read_params
from feal.registry import Configurable, Registry
from feal.settings import Component

SYNTHETIC_DATASETS: Registry[type[SyntheticDataset]] = Registry("data set")
SYNTHETIC_DATASETS.register(
    SyntheticLesions.name,
    summary="classification: six kinds of skin lesion, drawn by rule, at four centres that differ",
)(SyntheticLesions)
SYNTHETIC_DATASETS.register(
    SyntheticPolyps.name, summary="segmentation: polyps on mucosa, drawn by rule, at four centres that differ"
)(SyntheticPolyps)

_SPLIT_SUFFIXES: Mapping[SplitRule, str] = {"shipped": "shipped", "8:2": "8-2"}
_VARIANT = re.compile(rf"(-\d+)?(?P<split>-({'|'.join(_SPLIT_SUFFIXES.values())}))?")
"""What follows the name of a set in that of its folder."""


def _read_rule(value: object) -> object:
    """Return the rule of a split; YAML reads 8:2 without quotes as a number to the base 60."""
    return "8:2" if value == 8 * 60 + 2 else value


class PreparedData(Configurable):
    """Take a data set from a prepared folder, which is made on first use if the files it comes from are named."""

    class Params(Configurable.Params):
        """Which of the prepared folders, or what to prepare."""

        size: int | None = Field(
            None, ge=8, le=4096, description="height and width that the set was prepared with, if not its own"
        )
        split: Annotated[SplitRule | None, BeforeValidator(_read_rule)] = Field(
            None, description="rule by which the set was split into train and test, if not its own"
        )
        source: str | None = Field(
            None, description="folder of the original files, to prepare the set on first use"
        )

    params: Params
    is_generated: ClassVar[bool] = False


def find_dataset(name: str) -> type[SyntheticDataset] | type[PreparedData]:
    """Return the class that declares the parameters of a data set.

    Raises:
        FealError: a user's class that is missing, cannot be imported, or is no data set.

    >>> find_dataset("synthetic-polyps").__name__, find_dataset("fed-isic").__name__
    ('SyntheticPolyps', 'PreparedData')
    """
    found = _find_class(name)
    return found if found is not None and issubclass(found, SyntheticDataset) else PreparedData


def is_dataset_name(dataset: str, *, data: str | Path | None = None) -> bool:
    """Return whether this is the name of a data set, known or prepared, rather than a path."""
    if _find_class(dataset) is not None or _find_prepared(dataset, data) is not None:
        return True
    return bool(_find_variants(dataset, data))


def unknown_dataset_error(dataset: str) -> FealError:
    """Return the error for an unknown data set."""
    return unknown_name_error("data set", dataset, [*SYNTHETIC_DATASETS.names(), *DATASET_SOURCES.names()])


def data_roots() -> list[Path]:
    """Return the folders that hold prepared sets: `$FEAL_DATA` if it is set, and the user's cache."""
    own = [Path(os.environ["FEAL_DATA"])] if os.environ.get("FEAL_DATA") else []
    return [*own, user_cache()]


def name_set_folder(
    dataset: DatasetSource | type[DatasetSource], *, size: int | None = None, split: SplitRule | None = None
) -> str:
    """Name the folder of a set: its name, with size and rule of the split where they are not the usual ones.

    >>> isic = DATASET_SOURCES.get("fed-isic")
    >>> name_set_folder(isic, size=224), name_set_folder(isic, size=128), name_set_folder(isic, split="8:2")
    ('fed-isic', 'fed-isic-128', 'fed-isic-8-2')
    """
    unusual_size = None if size == dataset.size else size
    return _append_variant(dataset.name, unusual_size, None if split == dataset.split else split)


def _append_variant(name: str, size: int | None, split: SplitRule | None) -> str:
    parts = [str(size)] if size else []
    return "-".join([name, *parts, *([_SPLIT_SUFFIXES[split]] if split else [])])


def locate(
    dataset: str | Component,
    *,
    params: Mapping[str, Any] | None = None,
    data: str | Path | None = None,
    draw: bool = True,
) -> Path:
    """Return the prepared folder of a data set, given by its name, as a folder itself, or as `file.py:Class`.

    A synthetic set is drawn on first use, into a folder named by its parameters below `data`, `$FEAL_DATA` or
    the user's cache (never if `draw` is off). Any other set is the folder `data`, or a folder below `data`,
    `$FEAL_DATA` or the cache with its name, or its name with `size` and `split` (`fed-isic-128`,
    `fed-isic-8-2`); if it is not there and `source` names the original files, it is prepared.

    Raises:
        FealError: an unknown data set, one that is not prepared or only in another size or split (the message says
            where it was searched for and how to prepare it), an invalid parameter, or a folder that cannot be
            written.
    """
    named = Component(name=dataset, **(params or {})) if isinstance(dataset, str) else dataset
    owner = find_dataset(named.name)
    values = read_params(owner, named.params, section="dataset", name=named.name)
    if issubclass(owner, SyntheticDataset):
        return _locate_synthetic(owner(values), _list_roots(data)[0], draw=draw)
    return _locate_prepared(named.name, data, values)


def _find_class(name: str) -> type[SyntheticDataset] | type[DatasetSource] | None:
    """Return the class of a known name, `file.py:Class` or `module:Class`; None for any other name."""
    if name in SYNTHETIC_DATASETS.names():
        return SYNTHETIC_DATASETS.get(name)
    if name in DATASET_SOURCES.names():
        return DATASET_SOURCES.get(name)
    if ":" not in name or Path(name).exists():
        return None
    base = (SyntheticDataset, DatasetSource)
    return find_class(name, registry=SYNTHETIC_DATASETS, base=base, derive="feal.data.SyntheticDataset")


def _locate_synthetic(dataset: SyntheticDataset, folder: Path, *, draw: bool) -> Path:
    content = json.dumps([dataset.version, dataset.params.model_dump()], sort_keys=True)
    root = folder / f"{dataset.name}-{hashlib.blake2b(content.encode(), digest_size=6).hexdigest()}"
    if (root / MANIFEST_FILE).exists():
        return root
    if not draw:
        raise FealError(f"The data set {dataset.name} is not drawn in {root}: `feal run` draws it.")
    with lock_file(root.with_name(f".{root.name}.lock")):
        for left_by_a_kill in root.parent.glob(f".{root.name}.*.partial"):
            shutil.rmtree(left_by_a_kill, ignore_errors=True)
        if not (root / MANIFEST_FILE).exists():
            dataset.write(root)
    return root


def _locate_prepared(dataset: str, data: str | Path | None, params: PreparedData.Params) -> Path:
    kind, size, split = _find_class(dataset), params.size, params.split
    assert kind is None or issubclass(kind, DatasetSource)
    dataset = kind.name if kind else dataset
    found = _find_prepared(dataset, data, size, split)
    if found is not None:
        return found
    if params.source is not None:
        if kind is None:
            raise FealError(
                "dataset.source is for data sets with a class: use `feal data prepare folder` for others."
            )
        root = _list_roots(data)[0] / name_set_folder(kind, size=size, split=split)
        return prepare_dataset(create_source(kind), Path(params.source), root, size=size, split=split).root
    variants = _find_variants(dataset, data)
    if len(variants) == 1 and size is None and split is None and kind is None:
        return next(iter(variants.values()))  # a user's own images have no usual size
    if variants or kind:
        raise _not_prepared_error(dataset, data, size, split, variants)
    if not Path(dataset).is_dir():
        raise unknown_dataset_error(dataset)
    return _check_variant(Path(dataset), size, split)


def _check_variant(folder: Path, size: int | None, split: SplitRule | None) -> Path:
    """Return a folder that a user named, or raise a `FealError` if it has another size or split."""
    if size not in (None, _read_side(folder)):
        height, width = read_manifest(folder)[0].square
        raise FealError(
            f"{folder} holds images of {width} x {height} pixels, not of dataset.size={size}: "
            f"leave dataset.size out, or name a folder that was prepared with --size {size}."
        )
    if split not in (None, _read_split(folder)):
        raise FealError(
            f"{folder} has the split {_read_split(folder)}, not dataset.split={split}: leave dataset.split out, "
            f"or name a folder that was prepared with --split {split}."
        )
    return folder


def _list_roots(data: str | Path | None) -> list[Path]:
    return data_roots() if data is None else [Path(data)]


def _list_candidates(
    dataset: str, data: str | Path | None, size: int | None, split: SplitRule | None
) -> list[Path]:
    """List the folders where a set is searched for, in order."""
    pairs = product(dict.fromkeys([size, None]), dict.fromkeys([split, None]))
    names = [_append_variant(dataset, *pair) for pair in pairs]
    below = [root / name for root in _list_roots(data) for name in names]
    return below if data is None else [Path(data), *below]


def _find_prepared(
    dataset: str, data: str | Path | None, size: int | None = None, split: SplitRule | None = None
) -> Path | None:
    """Find the folder of a prepared set by its name: of that size and split, or the one without in its name."""
    for folder in _list_candidates(dataset, data, size, split) if is_name(dataset) else ():
        if _holds(folder, dataset) and size in (None, _read_side(folder)) and split in (None, _read_split(folder)):
            return folder
    return None


def _find_variants(dataset: str, data: str | Path | None) -> dict[str, Path]:
    """Find the prepared folders of a data set by the parameters that name them, in order of size."""
    if not is_name(dataset):
        return {}
    below = [path for root in _list_roots(data) for path in sorted(root.glob(f"{dataset}-*"))]
    named = [(path, _VARIANT.fullmatch(path.name.removeprefix(dataset))) for path in below]
    plain = [(path, None) for path in _list_candidates(dataset, data, None, None)]
    found: dict[tuple[int, str], Path] = {}
    for folder, match in [*plain, *((path, match) for path, match in named if match)]:
        try:
            if _holds(folder, dataset):
                split = f" dataset.split={_read_split(folder)}" if match and match["split"] else ""
                found.setdefault((_read_side(folder), split), folder)
        except FealError:
            continue  # a damaged set is no alternative
    return {f"dataset.size={side}{split}": folder for (side, split), folder in sorted(found.items())}


def _holds(folder: Path, dataset: str) -> bool:
    has_set = (folder / MANIFEST_FILE).is_file()
    return has_set and (folder.name == dataset or read_manifest(folder)[0].name == dataset)


def _read_side(folder: Path) -> int:
    """Return the height and width that a set was prepared with, without margins; 0 if they differ."""
    height, width = read_manifest(folder)[0].square
    return height if height == width else 0


def _read_split(folder: Path) -> str:
    """Return the rule of a prepared set's split; sets of former versions kept the shipped one."""
    return str(read_manifest(folder)[0].source.get("split_rule", "shipped"))


def _not_prepared_error(
    dataset: str,
    data: str | Path | None,
    size: int | None,
    split: SplitRule | None,
    variants: Mapping[str, Path],
) -> FealError:
    searched = " and ".join(map(str, _list_candidates(dataset, data, size, split)))
    at, option = ("", "") if size is None else (f" at {size} pixels", f" --size {size}")
    if split is not None:
        at, option = f"{at} with the split {split}", f"{option} --split {split}"
    name = dataset if dataset in DATASET_SOURCES.names() else f"folder --name {dataset}"
    listed = ", ".join(f"{variant} in {folder}" for variant, folder in variants.items())
    return FealError(
        f"The data set {dataset} is not prepared{at} in {searched}: prepare it by "
        f"`feal data prepare {name} --from DOWNLOAD{option}`, "
        + (f"or use an existing one ({listed})." if variants else "or name its folder by data=FOLDER.")
    )
