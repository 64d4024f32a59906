"""Files of 16 bits a channel, which pillow reads but cannot write."""

import struct
import zlib
from pathlib import Path

import numpy as np

KINDS = {1: 0, 2: 4, 3: 2, 4: 6}
"""PNG's colour type by the number of channels."""


def save_png(path: Path, pixels: np.ndarray) -> None:
    """Pixels [H, W, C] of uint16."""
    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", width, height, 16, KINDS[channels], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts))


def save_tiff(path: Path, pixels: np.ndarray) -> None:
    """Pixels [H, W, 3] of uint16, uncompressed and in one strip."""
    height, width, channels = pixels.shape
    data = pixels.astype("<u2").tobytes()
    bits = 8 + len(data)
    short, long = 3, 4
    entries = [
        (256, short, 1, width),
        (257, short, 1, height),
        (258, short, channels, bits),
        (259, short, 1, 1),
        (262, short, 1, 2),
        (273, long, 1, 8),
        (277, short, 1, channels),
        (278, short, 1, height),
        (279, long, 1, len(data)),
    ]
    table = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    after = bits + 2 * channels
    content = data + struct.pack(f"<{channels}H", *[16] * channels) + table + struct.pack("<I", 0)
    path.write_bytes(struct.pack("<2sHI", b"II", 42, after) + content)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
