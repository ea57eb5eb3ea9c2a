"""The connection to a server: one HTTP connection for each thread."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
import time
import urllib.parse
from typing import Any, Optional

from . import errors

PROTOCOL = 1
DEFAULT_URL = "http://127.0.0.1:8228"
DEFAULT_TOKEN_FILE = os.path.join("exoswarm-data", "program.token")
ARRAYS = "application/zip"
JSON = "application/json"


class Client:
    """A connection to the server that exoswarm serve --programs runs.

    Without arguments the variables EXOSWARM_API, EXOSWARM_TOKEN and EXOSWARM_TOKEN_FILE say where
    the server is and which token it takes; without these it is the server of this machine whose
    data folder is exoswarm-data in the current folder. timeout bounds each request in seconds.
    A client may be used by several threads. Close it, or use it in a with statement.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        token: Optional[str] = None,
        timeout: float = 330,
        context: Optional[ssl.SSLContext] = None,
    ) -> None:
        self.url = (url or os.environ.get("EXOSWARM_API") or DEFAULT_URL).rstrip("/")
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise errors.UnreachableError(
                f"the address {self.url!r} is not one of a server: write http://HOST:PORT or https://HOST:PORT"
            )
        self._parts = parts
        self._token = token or _find_token()
        self._timeout = timeout
        self._context = context
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open: list[http.client.HTTPConnection] = []
        self._checked = False

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. A later call opens them again."""
        with self._lock:
            for connection in self._open:
                connection.close()
            self._open.clear()

    def __del__(self) -> None:
        if hasattr(self, "_open"):
            self.close()

    def _connection(self) -> http.client.HTTPConnection:
        got: Optional[http.client.HTTPConnection] = getattr(self._local, "connection", None)
        if got is None:
            host, port = self._parts.hostname or "", self._parts.port
            if self._parts.scheme == "https":
                got = http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._context)
            else:
                got = http.client.HTTPConnection(host, port, timeout=self._timeout)
            self._local.connection = got
        with self._lock:
            if got not in self._open:
                self._open.append(got)
        return got

    def _send(
        self, method: str, path: str, body: Optional[bytes], media: str, accept: str
    ) -> tuple[int, "http.client.HTTPMessage", bytes]:
        headers = {"Accept": accept}
        if self._token:
            headers["Authorization"] = "Bearer " + self._token
        if body is not None:
            headers["Content-Type"] = media
        target = f"{self._parts.path}/api/v1/{path}"
        # The server closes a connection that was idle for two minutes. A request is never sent twice:
        # nobody knows whether the rows of the first one took effect.
        connection = self._connection()
        now = time.monotonic()
        if now - getattr(self._local, "used", now) > 60:
            connection.close()
        try:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error
        self._local.used = time.monotonic()
        return response.status, response.msg, content

    def _unreachable(self, error: Exception) -> errors.UnreachableError:
        return errors.UnreachableError(
            f"the server at {self.url} does not answer ({error}): start it with exoswarm serve --programs, or set "
            "EXOSWARM_API to its address"
        )

    def check(self) -> None:
        """Check that the server has the protocol of this package. The first request does it too."""
        if self._checked:
            return
        status, _, body = self._send("GET", "login", None, JSON, JSON)
        if status in (401, 403):
            raise self._login()
        try:
            about = json.loads(body)
        except ValueError:
            about = None
        if status != 200 or not isinstance(about, dict):
            raise errors.VersionError(
                f"the server at {self.url} is not one of Exoswarm (status {status}): check EXOSWARM_API"
            )
        has, version = about.get("programs", 0), about.get("version") or "unknown"
        if has == 0:
            raise errors.VersionError(
                f"the server at {self.url} (version {version}) has no routes for programs: start exoswarm serve with "
                "--programs, or update it"
            )
        if has != PROTOCOL:
            other = "this package" if has > PROTOCOL else "the server"
            raise errors.VersionError(
                f"the server at {self.url} (version {version}) speaks version {has} of the protocol, and this package "
                f"version {PROTOCOL}: update {other}"
            )
        self._checked = True

    def _login(self) -> errors.LoginError:
        what = "does not accept the token" if self._token else "needs a token"
        return errors.LoginError(
            f"the server at {self.url} {what}: set EXOSWARM_TOKEN_FILE to program.token in its data folder, or "
            "EXOSWARM_TOKEN to the token itself"
        )

    def request(
        self, method: str, path: str, body: Optional[bytes] = None, media: str = JSON, accept: str = "*/*"
    ) -> tuple[int, "http.client.HTTPMessage", bytes]:
        """Send a request below /api/v1/, and return status, headers and body of its answer."""
        self.check()
        status, headers, content = self._send(method, path, body, media, accept)
        if status < 300:
            return status, headers, content
        raise self._error(status, content)

    def _error(self, status: int, content: bytes) -> errors.ExoswarmError:
        try:
            message = str(json.loads(content)["error"])
        except (ValueError, KeyError, TypeError):
            message = f"the server answers {status}: {content[:200].decode('utf-8', 'replace')}"
        if status == 401:
            return self._login()
        if status == 404:
            return errors.NotFoundError(message)
        if status == 503:
            return errors.BusyError(message)
        return errors.RequestError(message, status)

    def call(self, method: str, path: str, value: Any = None) -> Any:
        """Send JSON, and return the JSON of the answer; None for an answer without one."""
        body = json.dumps({} if value is None else value).encode() if method != "DELETE" else None
        _, _, content = self.request(method, path, body)
        return json.loads(content) if content else None


def quote(name: str) -> str:
    """Return a name as an element of a path."""
    return urllib.parse.quote(name, safe="")


def _find_token() -> str:
    token = os.environ.get("EXOSWARM_TOKEN", "").strip()
    if token:
        return token
    named = os.environ.get("EXOSWARM_TOKEN_FILE")
    try:
        with open(named or DEFAULT_TOKEN_FILE, encoding="utf-8") as file:
            return file.read().strip()
    except OSError as error:
        if named:
            raise errors.LoginError(f"EXOSWARM_TOKEN_FILE: {error}") from error
        return ""


_default: Optional[Client] = None
_default_lock = threading.Lock()


def default() -> Client:
    """Return the client that all detectors and swarms without one of their own share."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Client()
        return _default
