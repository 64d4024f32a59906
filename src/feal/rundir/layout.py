"""Name every path of a run directory; no other module spells one.

```
RUN/config.yaml       the complete settings               RUN/metrics.jsonl   what happened, one record a line
RUN/state.json        the coordinator's last commit       RUN/summary.json    status and every finished round
RUN/origin.json       software, machine and command       RUN/weights/        global weights
RUN/replies/          weights of one communication round  RUN/deployment.json the Flower run, in a deployment
RUN/sites/NAME/       what one site keeps: site.sqlite, models/, selections/, diagnostics/, annotation/,
                      problem.txt (its last failure) and scratch/
```
"""

from pathlib import Path

from feal.errors import FealError


class SiteDirectory:
    """Paths of one site's own directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / "site.sqlite"
        self.problem = path / "problem.txt"
        self.lock = path / ".lock"
        self.models = path / "models"
        self.scratch = path / "scratch"
        self._selections = path / "selections"
        self._diagnostics = path / "diagnostics"

    @property
    def name(self) -> str:
        """The site's name."""
        return self.path.name

    def selection(self, round_: int) -> Path:
        """Return the table of the samples queried for the training of a round."""
        return self._selections / f"round-{round_:03}.csv"

    def pool_outputs(self, round_: int) -> Path:
        """Return the file of model outputs for the pool at the end of a round."""
        return self._diagnostics / f"round-{round_:03}.safetensors"

    def test_outputs(self, round_: int) -> Path:
        """Return the file of model outputs for the test samples at the end of a round."""
        return self._diagnostics / f"evaluation-{round_:03}.safetensors"

    def selected_rounds(self) -> list[int]:
        """List the rounds that have a table of queried samples."""
        return sorted(_number(path) for path in self._selections.glob("round-*.csv"))

    def tested_rounds(self) -> list[int]:
        """List the rounds that have model outputs for the test samples."""
        return sorted(_number(path) for path in self._diagnostics.glob("evaluation-*.safetensors"))


class RunDirectory:
    """Paths of one run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.state = path / "state.json"
        self.log = path / "metrics.jsonl"
        self.summary = path / "summary.json"
        self.origin = path / "origin.json"
        self.deployment = path / "deployment.json"
        self.weights = path / "weights"
        self.replies = path / "replies"
        """Weights of this communication round, in a file by the name of each site that replied."""
        self.sites = path / "sites"

    def weights_file(self, name: str) -> Path:
        """Return the file of global weights of that name."""
        return self.weights / f"{name}.safetensors"

    def replied_sites(self) -> set[str]:
        """Return the sites whose weights of this communication round have arrived."""
        return {path.name for path in self.replies.glob("*")}

    def site(self, name: str) -> SiteDirectory:
        """Return the directory of one site."""
        return SiteDirectory(self.sites / name)

    def site_directories(self) -> list[SiteDirectory]:
        """List the sites that keep a database here, by name."""
        return [SiteDirectory(path.parent) for path in sorted(self.sites.glob("*/site.sqlite"))]


def round_weights(round_: int, step: int | None = None) -> str:
    """Name the global weights after a round, or after so many of its communication rounds.

    >>> round_weights(2), round_weights(2, 15)
    ('round-002', 'round-002-step-015')
    """
    return f"round-{round_:03}" if step is None else f"round-{round_:03}-step-{step:03}"


def create_run_directory(path: Path) -> tuple[RunDirectory, bool]:
    """Create the directory of a new run; return it and whether it did not exist before.

    Raises:
        FealError: it cannot be created, holds a run, or is not empty.
    """
    run = RunDirectory(path)
    try:
        is_new = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        # Hidden files are a lock, or the remains of a first write that was killed.
        is_taken = any(not entry.name.startswith(".") for entry in path.iterdir())
    except OSError as error:
        raise FealError(f"{path} cannot be used as a run directory ({error.strerror}): choose another.") from error
    if run.config.exists():
        raise FealError(
            f"{path} holds a run already: continue it with `feal resume {path}`, or choose another --out."
        )
    if is_taken:
        raise FealError(f"{path} is not empty and holds no run: choose another --out.")
    return run, is_new


def free_path(parent: Path, name: str) -> Path:
    """Return a path below `parent` that does not exist: the name, with a number appended if it is taken."""
    number = 1
    path = parent / name
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path


def _number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])
