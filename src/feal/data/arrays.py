"""Read and write `.npy` files a few rows at a time."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from feal.errors import FealError

REPAIR = "copy it again, or remove the set's folder and prepare the data set again"
"""The remedy that errors about a damaged set suggest; `feal data prepare` never overwrites a set."""

_RESIDENT = 64 * 2**20
_LARGE = 256 * 2**20


class StoredArray:
    """A memory-mapped `.npy` file whose header and size agree with the expected shape.

    Opening reads the header only. `read` copies rows and releases the mapped pages from time to time, since they
    count as memory of this process once touched. In a large file the rows are prefetched: without the hint the
    system reads megabytes around every row.

    Raises:
        FealError: the file is missing, truncated, not an array, or of another shape or type.
    """

    def __init__(self, path: Path, *, shape: tuple[int, ...], kinds: Collection[str]) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                found, dtype = _read_header(file, path)
                self._offset = file.tell()
                if dtype.name not in kinds and dtype.kind not in kinds:
                    wanted = " or ".join(sorted(kinds))
                    raise _damage_error(path, f"holds values of type {dtype}, not {wanted},")
                if found != shape:
                    raise _damage_error(path, f"has the shape {found} instead of {shape}")
                size, expected = os.fstat(file.fileno()).st_size, self._offset + math.prod(shape) * dtype.itemsize
                if size != expected:
                    raise _damage_error(path, f"has {size} bytes instead of {expected}")
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise _damage_error(path, f"cannot be read ({error.strerror})") from None
        self.array: NDArray[Any] = np.ndarray(shape, dtype, self._map, self._offset)
        self._touched = 0

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return a copy of these rows, in this order, shape [b, ...]."""
        if self.array.nbytes > _LARGE and hasattr(mmap, "MADV_WILLNEED"):
            width = self.array[0].nbytes
            for row in rows.tolist():
                start = (self._offset + row * width) // mmap.PAGESIZE * mmap.PAGESIZE
                self._map.madvise(mmap.MADV_WILLNEED, start, self._offset + (row + 1) * width - start)
        part = self.array[rows]
        self._touched += part.nbytes
        if self._touched > _RESIDENT and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
            self._touched = 0
        return part


class ArrayWriter:
    """A writer of `.npy` files in parts, for a number of rows that is not known in advance.

    With `keep`, that many rows of an existing file (see `count_rows`) stay, and writing continues after them.
    """

    def __init__(self, path: Path, *, row: tuple[int, ...], dtype: str, keep: int = 0) -> None:
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.row = row
        self.rows = keep
        self._file = path.open("r+b" if keep else "wb")
        try:
            self._write_header()
            self._file.seek(keep * math.prod(row) * self.dtype.itemsize, os.SEEK_CUR)
            self._file.truncate()
        except OSError:
            self.close(sync=False)
            raise

    def append(self, part: NDArray[Any]) -> None:
        """Append rows of shape [b, *row]."""
        self._file.write(np.ascontiguousarray(part, dtype=self.dtype).data)
        self.rows += len(part)

    def sync(self) -> None:
        """Flush the rows written so far to disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self, *, sync: bool = True) -> None:
        """Write the final number of rows into the header and flush; without `sync` just close the file.

        Closing without `sync` never raises: on a full disk, flushing the buffer would repeat the first error.
        """
        if self._file.closed:
            return
        try:
            if sync:
                self._file.seek(0)
                self._write_header()
                self.sync()
        finally:
            with suppress(OSError):
                self._file.close()

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(sync=kind is None)

    def _write_header(self) -> None:
        # numpy pads headers for a longer first axis, so the size of the header does not change.
        descr = npy.dtype_to_descr(self.dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self.rows, *self.row)}
        npy.write_array_header_1_0(self._file, header)


def count_rows(path: Path, *, row: tuple[int, ...], dtype: str) -> int:
    """Count the complete rows that an interrupted `ArrayWriter` left at `path`; 0 without such a file."""
    try:
        with path.open("rb") as file:
            shape, found = _read_header(file, path)
            size = os.fstat(file.fileno()).st_size - file.tell()
    except (FileNotFoundError, FealError):
        return 0
    fits = shape[1:] == row and found == np.dtype(dtype).newbyteorder("<")
    return size // (math.prod(row) * found.itemsize) if fits else 0


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write a whole array and flush it to disk."""
    with ArrayWriter(path, row=array.shape[1:], dtype=array.dtype.str) as writer:
        writer.append(array)


def _read_header(file: BinaryIO, path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    try:
        shape, is_fortran, dtype = readers[npy.read_magic(file)](file)
    except (ValueError, KeyError, SyntaxError):
        raise _damage_error(path, "is not a numpy array") from None
    if is_fortran and len(shape) > 1:
        raise _damage_error(path, "is stored column by column")
    return shape, dtype


def _damage_error(path: Path, how: str) -> FealError:
    return FealError(f"The file {path} {how}: {REPAIR}.")
