"""The exceptions of the package. Each text says what is wrong, where, and what to do."""

from __future__ import annotations


class ExoswarmError(Exception):
    """Any error of this package."""


class UnreachableError(ExoswarmError):
    """No server answers at the address."""


class LoginError(ExoswarmError):
    """The server does not accept the token, or there is none."""


class VersionError(ExoswarmError):
    """The server speaks another version of the protocol, or has no routes for programs."""


class SpecError(ExoswarmError):
    """The specification is not valid, or differs from the specification of the existing swarm."""


class FrameError(ExoswarmError):
    """The data lack a column, or have values of a wrong type."""


class NotFoundError(ExoswarmError):
    """There is no swarm, snapshot, worker or job of that name."""


class BusyError(ExoswarmError):
    """The server does too much at a time. The same call may succeed later."""


class RequestError(ExoswarmError):
    """The server refused a request for another reason, or failed. status is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
