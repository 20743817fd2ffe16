"""Directories that hold a journal."""

from pathlib import Path


def holds_journal(directory: Path) -> bool:
    """Whether jobs were ever kept there."""
    from holdfast.journal.manifest import MANIFEST_NAME
    from holdfast.journal.segment import segment_names

    names = [path.name for path in directory.iterdir()]
    return MANIFEST_NAME in names or bool(segment_names(names))


def nearby() -> str:
    """The name of a directory in this folder that holds a journal, if there is one."""
    return next((path.name for path in sorted(Path.cwd().iterdir()) if _is_journal(path)), "")


def _is_journal(path: Path) -> bool:
    try:
        return path.is_dir() and holds_journal(path)
    except OSError:  # of somebody else; not what we look for
        return False
