"""Many runs in a few processes: finished ones are left alone, interrupted ones go on, broken ones are named."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from feal.errors import FealError
from feal.experiment.folder import RunFolder, settings_of
from feal.experiment.running import resume, start
from feal.experiment.workers import work_off
from feal.federation.journal import Journal
from feal.settings import Settings


@dataclass(frozen=True)
class Job:
    """A run to be had, and where."""

    folder: Path
    settings: Settings

    @property
    def name(self) -> str:
        """The last two parts of its place, which tell runs of a sweep apart."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    def check(self) -> None:
        """Refuse a place that holds another run; a damaged one is found out when it is carried out.

        Raises:
            FealError: a run with other settings.
        """
        there = None
        with suppress(FealError):
            there = settings_of(RunFolder(self.folder))
        if there is not None and self._settled(there).identity() != there.identity():
            raise FealError(f"{self.folder} holds a run with other settings: choose another --out, or remove it.")

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.share == 1.0

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1; of a damaged run nothing counts."""
        journal = Journal(self.folder)
        try:
            state = journal.load() if journal.begun() else None
        except FealError:
            return 0.0
        if state is None:
            return 0.0
        rounds = self.settings.rounds
        if state.stage == "finished" and state.round >= rounds and RunFolder(self.folder).summary.exists():
            return 1.0
        in_training = state.stage == "train"
        done = state.round - 1 + state.step / self.settings.communication_rounds if in_training else state.round
        # The end of the last round is still to come: evaluation, perhaps a selection.
        return min(max(done, 0.0) / rounds, 0.999)

    def carry_out(self) -> str | None:
        """Start the run or go on with it; why it is not finished, if it is not."""
        try:
            folder = RunFolder(self.folder)
            if folder.config.exists():
                result = resume(self.folder, settings=self._settled(settings_of(folder)))
            else:
                result = start(self.settings, out=self.folder)
        except FealError as error:
            return str(error)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        if result.status == "waiting":
            return f"It waits for labels: `feal labels {self.folder}` says which."
        return None

    def _settled(self, there: Settings) -> Settings:
        """These settings, with what a run that is there has found out when it began: task and weights."""
        evidence, digest = self.settings.evidence, self.settings.weights_digest
        if evidence.squared is None:
            evidence = evidence.model_copy(update={"squared": there.evidence.squared})
        found = {"evidence": evidence, "weights_digest": digest or there.weights_digest}
        return self.settings.model_copy(update=found)


class Onlooker:
    """Hears how many runs are getting on; this one does nothing about it."""

    def advanced(self, done: float, total: int, running: Sequence[Job]) -> None:
        """So many runs are done, with parts of those under way."""

    def ended(self, job: Job, problem: str | None) -> None:
        """A run is finished, or is not for a reason."""


def carry_out(jobs: Sequence[Job], *, processes: int, onlooker: Onlooker | None = None) -> dict[Path, str]:
    """Carry out what is not finished yet; why a run is not finished now, by folder.

    Raises:
        FealError: a folder holds a run with other settings; nothing was begun then.
    """
    for job in jobs:
        job.check()
    onlooker = onlooker or Onlooker()
    shares = {job.folder: job.share for job in jobs}
    problems: dict[Path, str] = {}

    def moved(running: Sequence[Job]) -> None:
        shares.update({job.folder: job.share for job in running})
        onlooker.advanced(sum(shares.values()), len(jobs), running)

    todo = [job for job in jobs if shares[job.folder] < 1]
    with closing(work_off(todo, Job.carry_out, processes=processes, moved=moved)) as ends:
        for job, problem in ends:
            # A broken run is behind us, too, as far as the time left goes.
            shares[job.folder] = 1.0
            if problem is not None:
                problems[job.folder] = problem
            onlooker.ended(job, problem)
    return problems
