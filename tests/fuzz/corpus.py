"""Inputs that are kept as files, one folder for each target; whatever was found once is there, by its hash."""

import hashlib
from pathlib import Path

INPUTS = Path(__file__).parent / "inputs"


def kept(target: str) -> list[Path]:
    """The files of one target, in an order that never changes."""
    return sorted(path for path in (INPUTS / target).glob("*") if path.is_file())


def keep(target: str, data: bytes) -> Path:
    """Writes an input down and says where; the same input always has the same name."""
    folder = INPUTS / target
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path
