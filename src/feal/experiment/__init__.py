"""Runs and sweeps: one directory a run, resumable at any moment."""

from feal.experiment.run import Result, resume, start

__all__ = ["Result", "resume", "start"]
