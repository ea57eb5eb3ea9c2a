"""Archives of arrays (.npz of NumPy) without NumPy. With NumPy the arrays are its arrays."""

from __future__ import annotations

import array
import ast
import io
import json
import struct
import sys
import zipfile
from typing import Any, Mapping

try:
    import numpy as np
except ImportError:
    np = None  # type: ignore[assignment]

# The type codes of array.array by the types of NumPy.
_CODES = {
    "|u1": "B", "<u2": "H", "<u4": "I", "<u8": "Q", "|i1": "b", "<i4": "i", "<i8": "q", "<f4": "f",
    "<f8": "d",
}
_MAGIC = b"\x93NUMPY"


def have_numpy() -> bool:
    """Report whether arrays are NumPy arrays."""
    return np is not None


class Matrix:
    """Rows of numbers, for programs without NumPy: m[i] is a row as a memoryview.

    data is an array.array with the elements, row after row; shape is (rows, columns).
    """

    def __init__(self, data: "array.array[Any]", width: int) -> None:
        self.data = data
        self.shape = (len(data) // width if width else 0, width)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, i: int) -> memoryview:
        if not -len(self) <= i < len(self):
            raise IndexError(f"row {i} of {len(self)}")
        i %= len(self)
        return memoryview(self.data)[i * self.shape[1] : (i + 1) * self.shape[1]]

    def tolist(self) -> list[list[Any]]:
        """Return the rows as lists."""
        return [row.tolist() for row in (self[i] for i in range(len(self)))]


def column(kind: str, values: Any) -> Any:
    """Return values as an array of a type such as "<f8": of NumPy when it is present."""
    if np is not None:
        return np.ascontiguousarray(values, dtype=kind)
    if isinstance(values, array.array) and values.typecode == _CODES[kind]:
        return values
    return array.array(_CODES[kind], values)


def _header(kind: str, shape: tuple[int, ...]) -> bytes:
    text = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(_MAGIC) + 4 + len(text) + 1) % 64) + b"\n"
    return _MAGIC + b"\x01\x00" + struct.pack("<H", len(text)) + text


def write(arrays: Mapping[str, tuple[str, Any, int]], documents: Mapping[str, Any]) -> bytes:
    """Return an archive. An array is its type, its values, and the width of its rows, or 0."""
    if sys.byteorder != "little":
        raise NotImplementedError("exoswarm needs a little-endian machine")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, (kind, values, width) in arrays.items():
            values = column(kind, values)
            data = memoryview(values).cast("B") if len(values) else b""
            size = int(kind[2])
            n = len(data) // size
            shape = (n // width, width) if width else (n,)
            with archive.open(name + ".npy", "w") as member:
                member.write(_header(kind, shape))
                member.write(data)
        for name, document in documents.items():
            archive.writestr(name + ".json", json.dumps(document))
    return out.getvalue()


def read(data: bytes) -> dict[str, Any]:
    """Return the arrays and documents of an archive by name."""
    out: dict[str, Any] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            content = archive.read(info)
            if info.filename.endswith(".json"):
                out[info.filename[:-5]] = json.loads(content)
            elif info.filename.endswith(".npy"):
                out[info.filename[:-4]] = _array(content)
    return out


def _array(content: bytes) -> Any:
    if content[:6] != _MAGIC:
        raise ValueError("not a .npy file")
    if content[6] == 1:
        (length,), begin = struct.unpack_from("<H", content, 8), 10
    else:
        (length,), begin = struct.unpack_from("<I", content, 8), 12
    about = ast.literal_eval(content[begin : begin + length].decode("latin-1"))
    kind, shape = about["descr"], tuple(about["shape"])
    body = memoryview(content)[begin + length :]
    if np is not None:
        return np.frombuffer(body, dtype=kind).reshape(shape)
    values = array.array(_CODES[kind])
    values.frombytes(body)
    return Matrix(values, shape[1]) if len(shape) == 2 else values
