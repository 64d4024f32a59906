"""Federated evidential active learning: hospitals train one model together and label only the images worth it.

>>> import feal
>>> result = feal.run("demo", strategy="random", rounds=2, out="runs/first")  # doctest: +SKIP
>>> result.rounds[-1]["metrics"]["balanced_accuracy"]["mean"]                 # doctest: +SKIP
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feal.errors import FealError
from feal.version import VERSION

if TYPE_CHECKING:
    from feal.experiment import Result

__version__ = VERSION
__all__ = ["FealError", "__version__", "resume", "run"]


def run(preset: str, *, out: str | PathLike[str], wait: bool = False, **overrides: Any) -> Result:
    """Run an experiment: a preset's name or the path of a YAML file, and settings that differ from it.

    A setting inside a section is given as `training={"lr": 1e-3}` or `**{"training.lr": 1e-3}`. A run that needs
    people's labels ends as `waiting`, unless it is to `wait` for them.

    Raises:
        FealError: bad settings, data that do not fit, a directory that is taken.
    """
    from feal.config import load
    from feal.experiment import start

    return start(load(preset, overrides), out=Path(out), wait=wait)


def resume(folder: str | PathLike[str], *, wait: bool = False, **changes: Any) -> Result:
    """Go on with a run where it was committed last, with other operational settings such as `rounds=8`.

    Raises:
        FealError: no run there, an edited configuration, a damaged file, another process at work.
    """
    from feal.config import revise
    from feal.experiment import resume as proceed
    from feal.experiment.folder import RunFolder, settings_of
    from feal.settings import flatten

    path = Path(folder)
    settings = revise(settings_of(RunFolder(path)), flatten(changes)) if changes else None
    return proceed(path, settings=settings, wait=wait)
