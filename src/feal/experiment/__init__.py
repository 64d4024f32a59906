"""One run directory, resumable at any moment."""

from feal.experiment.running import Result, resume, start

__all__ = ["Result", "resume", "start"]
