"""Detectors, swarms and workers of an Exoswarm server.

Start a server with exoswarm serve --programs. docs/tutorial-python.md begins with a data frame and
ends with a ranked list of incidents.
"""

from ._client import Client
from .charts import Chart
from .decisions import Decision, Decisions, Incident, Why
from .detector import Detector, fit_predict
from .errors import (
    BusyError,
    ExoswarmError,
    FrameError,
    LoginError,
    NotFoundError,
    RequestError,
    SpecError,
    UnreachableError,
    VersionError,
)
from .swarm import Swarm, Vote
from .worker import Job, JobFailed, Retry, Worker, result, submit

__all__ = [
    "BusyError",
    "Chart",
    "Client",
    "Decision",
    "Decisions",
    "Detector",
    "ExoswarmError",
    "FrameError",
    "Incident",
    "Job",
    "JobFailed",
    "LoginError",
    "NotFoundError",
    "RequestError",
    "Retry",
    "SpecError",
    "Swarm",
    "UnreachableError",
    "VersionError",
    "Vote",
    "Why",
    "Worker",
    "fit_predict",
    "result",
    "submit",
]
__version__ = "0.1.0"
