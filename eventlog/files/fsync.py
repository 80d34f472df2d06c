"""What is to outlive the machine: files and the names in directories, on disk before anything builds on them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


def sync_file(file: BinaryIO) -> None:
    """Make the content of a file that is being written durable. Raises OSError."""
    file.flush()
    os.fsync(file.fileno())


def sync_path(path: Path | str) -> None:
    """Make the content of a closed file durable, or the names in a directory. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
