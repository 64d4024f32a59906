"""Runs and sweeps: one directory a run, resumable at any moment."""

from feal.experiment.run import Result as Result
from feal.experiment.run import resume as resume
from feal.experiment.run import start as start
