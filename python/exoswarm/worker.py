"""Workers: programs that do jobs of kinds of their own."""

from __future__ import annotations

import threading
import time
import traceback
from typing import Any, Callable, Optional

from . import _client
from .errors import BusyError, ExoswarmError, NotFoundError, UnreachableError


class Retry(Exception):
    """Raise it in Worker.work when the same job may succeed later, here or elsewhere."""


class Job:
    """A job that a worker does."""

    def __init__(self, about: dict[str, Any], say: Callable[[Any], None]) -> None:
        self.id: str = about["id"]
        self.kind: str = about["kind"]
        self.spec: Any = about["spec"]
        self.last_attempt: bool = about["last_attempt"]
        self.cancelled = threading.Event()
        """Set when the job was cancelled: a long work checks it and returns."""
        self._say = say

    def progress(self, value: Any) -> None:
        """Tell any value of JSON to whoever watches the job."""
        self._say(value)


class Worker:
    """The base class of workers.

    A subclass sets kind, or kinds, and has the method work, which returns the output of the job, any
    value of JSON. An exception ends the job as failed; Retry gives it back to the queue. run does
    jobs one after the other until stop is called. Meanwhile a thread tells the server that the
    program is alive, also while work runs. If the program dies, its job goes to another worker.

        class Words(Worker):
            kind = "words"

            def work(self, job):
                return len(job.spec["text"].split())

        Words().run()
    """

    kind: str = ""
    kinds: tuple[str, ...] = ()
    name: str = ""

    def __init__(self, client: Optional[_client.Client] = None) -> None:
        self.client = client or _client.default()
        self._stop = threading.Event()

    def work(self, job: Job) -> Any:
        """Do a job. A subclass has it."""
        raise NotImplementedError(f"{type(self).__name__} has no method work")

    def stop(self) -> None:
        """End run after the job that it does. It may be called from any thread or a signal handler."""
        self._stop.set()

    def run(self, most: Optional[int] = None, patience: float = 60) -> int:
        """Do jobs until stop, or until most of them are done. Return their number.

        patience is the time in seconds for which it asks a server again that does not answer.
        """
        done = 0
        silent: Optional[float] = None
        while not self._stop.is_set() and (most is None or done < most):
            try:
                done += self._serve(None if most is None else most - done)
                silent = None
            except (UnreachableError, NotFoundError, BusyError):
                silent = silent or time.monotonic()
                if time.monotonic() - silent > patience:
                    raise
                self._stop.wait(0.5)
        return done

    def _serve(self, most: Optional[int]) -> int:
        kinds = [*self.kinds] or [self.kind or type(self).__name__.lower()]
        about = self.client.call("POST", "workers", {"kinds": kinds, "name": self.name or kinds[0]})
        path, ttl, done = f"workers/{about['id']}", float(about["ttl_s"]), 0
        try:
            while not self._stop.is_set() and (most is None or done < most):
                job = self.client.call("POST", path + "/take", {"wait_s": min(5.0, ttl / 3)})
                if job is not None:
                    done += self._do(path, ttl, job)
            return done
        finally:
            try:
                self.client.call("DELETE", path)
            except ExoswarmError:
                pass  # the server ends it after its time

    def _do(self, path: str, ttl: float, about: dict[str, Any]) -> int:
        at = f"{path}/jobs/{_client.quote(about['id'])}"
        over = threading.Event()

        def say(value: Any = None) -> None:
            if not self.client.call("POST", at, {} if value is None else {"progress": value})["go_on"]:
                job.cancelled.set()

        job = Job(about, say)

        def beat() -> None:
            while not over.wait(ttl / 4):
                try:
                    say()
                except ExoswarmError:
                    pass  # the next one may reach the server

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            end: dict[str, Any] = {"output": self.work(job)}
        except Retry as error:
            end = {"error": str(error) or "try again", "retry": True}
        except Exception as error:  # pylint: disable=broad-except
            place = traceback.extract_tb(error.__traceback__)[-1]
            end = {"error": f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"}
        finally:
            over.set()
            thread.join()
        self.client.call("POST", at + "/end", end)
        return 1


def submit(kind: str, spec: Any = None, id: Optional[str] = None, client: Optional[_client.Client] = None) -> str:
    """Store a job for a worker, and return its id. The same id twice makes one job."""
    value: dict[str, Any] = {"kind": kind, "spec": spec}
    if id is not None:
        value["id"] = id
    got = (client or _client.default()).call("POST", "jobs", value)
    return str(got["id"])


class JobFailed(ExoswarmError):
    """A job has failed. code is the class of the error."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def result(id: str, timeout: float = 60, client: Optional[_client.Client] = None) -> Any:
    """Wait for the output of a job. It raises JobFailed for one that failed, and TimeoutError."""
    end = time.monotonic() + timeout
    while True:
        left = max(0.0, end - time.monotonic())
        got = (client or _client.default()).call(
            "POST", f"jobs/{_client.quote(id)}/result", {"wait_s": min(20.0, left)}
        )
        if got is not None:
            if got["status"] != "done":
                about = got.get("error") or {}
                raise JobFailed(f"job {id}: {about.get('message', got['status'])}", about.get("code", ""))
            return got.get("output")
        if time.monotonic() >= end:
            raise TimeoutError(f"job {id} has no result after {timeout} s: see exoswarm job explain {id}")
