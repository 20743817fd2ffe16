"""Stored inputs, one folder for each target; every finding is stored under its hash."""

import hashlib
from pathlib import Path

INPUTS = Path(__file__).parent / "inputs"


def kept(target: str) -> list[Path]:
    """The files of one target, sorted by name."""
    return sorted(path for path in (INPUTS / target).glob("*") if path.is_file())


def keep(target: str, data: bytes) -> Path:
    """Store an input and return its path; equal inputs have equal names."""
    folder = INPUTS / target
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path
