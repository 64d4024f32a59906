"""Pictures of a user's own, saved, prepared and refused in a line each."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feal.data import PreparedSet, open_prepared
from feal.data.prepare.base import FindingsError
from feal.data.prepare.image_folder import open_image_folder
from feal.data.prepare.pipeline import prepare_dataset
from feal.settings import Task
from tests.data.prepare.conftest import picture


def save(path: Path, number: int = 0, *, pixels: np.ndarray | None = None) -> None:
    """A picture by its number, or these pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(number) if pixels is None else pixels).save(path)


def prepared_own(root: Path, task: Task, *, skip_bad: bool = False, **options: object) -> PreparedSet:
    """The folder's pictures, prepared beside it."""
    own = open_image_folder(root, task=task, name="mine", **options)
    return open_prepared(
        prepare_dataset(own, root, root.parent / "to", size=32, threads=1, skip_bad=skip_bad).root
    )


def findings_in(root: Path, task: Task, **options: object) -> dict[str, str]:
    """What is wrong with the folder, by file."""
    with pytest.raises(FindingsError) as refused:
        prepared_own(root, task, **options)
    return {finding.file: finding.problem for finding in refused.value.findings}
