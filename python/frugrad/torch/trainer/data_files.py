"""Reading data files, also when packed as .xz or .gz."""

import gzip
import lzma
from pathlib import Path
from typing import Callable, Optional, Tuple

from . import RunError

_PACKED: Tuple[Tuple[str, Callable], ...] = (("", open), (".xz", lzma.open), (".gz", gzip.open))


def find(folder: Path, name: str) -> Optional[Tuple[Path, Callable]]:
    """The path of a file, packed or not, and the function that opens it; None if there is none."""
    for end, opener in _PACKED:
        path = folder / (name + end)
        if path.is_file():
            return path, opener
    return None


def read(folder: Path, name: str) -> bytearray:
    """The content of a file, unpacked."""
    found = find(folder, name)
    if found is None:
        raise RunError(f"{folder / name}: not found, nor packed as .xz or .gz")
    try:
        with found[1](found[0], "rb") as file:
            return bytearray(file.read())
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise RunError(f"{found[0]}: cannot read: {error}") from None
