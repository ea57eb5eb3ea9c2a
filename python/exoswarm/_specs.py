"""Specifications as programs write them."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping, Union

from .errors import ExoswarmError, RequestError, SpecError

Spec = Union[str, "os.PathLike[str]", Mapping[str, Any]]


def text_of(spec: Spec) -> str:
    """Return the text of a specification: a dict, a text of YAML, or the path of a file."""
    if isinstance(spec, Mapping):
        try:
            return json.dumps(spec)  # JSON is YAML
        except TypeError as error:
            raise SpecError(f"the specification has a value that is not one of YAML: {error}") from error
    if isinstance(spec, os.PathLike) or isinstance(spec, str) and "\n" not in spec and spec.endswith((".yaml", ".yml")):
        try:
            with open(spec, encoding="utf-8") as file:
                return file.read()
        except OSError as error:
            raise SpecError(f"the specification: {error}") from error
    if not isinstance(spec, str):
        raise SpecError(f"a specification is a dict, a text or a path, and not {type(spec).__name__}")
    return spec


def refused(error: ExoswarmError) -> ExoswarmError:
    """Return the error for a specification that the server refuses."""
    if isinstance(error, RequestError) and error.status in (400, 409):
        return SpecError(str(error))
    return error
