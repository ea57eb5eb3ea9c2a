"""The build backend of the package (PEP 517). It needs the standard library only.

The package is pure Python, so a wheel is an archive of its files with three files of metadata.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import tarfile
import zipfile
from typing import Any

NAME = "exoswarm"
HERE = os.path.dirname(os.path.abspath(__file__))


def _version() -> str:
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as file:
        for line in file:
            if line.startswith("version = "):
                return line.split('"')[1]
    raise RuntimeError("pyproject.toml has no version")


def _metadata() -> dict[str, bytes]:
    with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
        text = file.read()
    metadata = (
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {_version()}\n"
        "Summary: Detectors, swarms and workers of an Exoswarm server\n"
        "License: Apache-2.0\nRequires-Python: >=3.9\n"
        f"Description-Content-Type: text/markdown\n\n{text}"
    )
    wheel = f"Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    folder = f"{NAME}-{_version()}.dist-info/"
    return {folder + "METADATA": metadata.encode(), folder + "WHEEL": wheel.encode()}


def _sources() -> dict[str, bytes]:
    files = {}
    for name in sorted(os.listdir(os.path.join(HERE, NAME))):
        if name.endswith(".py") or name == "py.typed":
            with open(os.path.join(HERE, NAME, name), "rb") as file:
                files[f"{NAME}/{name}"] = file.read()
    return files


def _write(directory: str, files: dict[str, bytes]) -> str:
    files = {**files, **_metadata()}
    record = f"{NAME}-{_version()}.dist-info/RECORD"
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    wheel = f"{NAME}-{_version()}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data)
    return wheel


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel, and return the name of its file."""
    return _write(wheel_directory, _sources())


def build_editable(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel that refers to this folder, for pip install -e."""
    return _write(wheel_directory, {f"{NAME}.pth": (HERE + "\n").encode()})


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Build an archive of the sources, and return the name of its file."""
    base = f"{NAME}-{_version()}"
    files = _sources()
    for name in ("pyproject.toml", "backend.py", "README.md"):
        with open(os.path.join(HERE, name), "rb") as file:
            files[name] = file.read()
    files["PKG-INFO"] = next(iter(_metadata().values()))
    with tarfile.open(os.path.join(sdist_directory, base + ".tar.gz"), "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(f"{base}/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return base + ".tar.gz"
