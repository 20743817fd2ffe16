"""Directories that hold a journal."""

from pathlib import Path


def holds_journal(directory: Path) -> bool:
    """Whether jobs were ever kept there."""
    from holdfast.journal.manifest import MANIFEST_NAME
    from holdfast.journal.segment import segment_names

    names = [path.name for path in directory.iterdir()]
    return MANIFEST_NAME in names or bool(segment_names(names))


def parts_of(directory: Path) -> list[str]:
    """The directories of several processes that share this one, in the order in which they are backed up.

    Records first and results last: so no job has ended in the one without a result in the other.
    """
    names = ["job", "queue", "result", *(f"node-{index}" for index in range(len(list(directory.glob("node-*")))))]
    return [name for name in names if _is_journal(directory / name)] if not _is_journal(directory) else []


def nearby() -> str:
    """The name of a directory in this folder that holds a journal, if there is one."""
    return next((path.name for path in sorted(Path.cwd().iterdir()) if _is_journal(path)), "")


def _is_journal(path: Path) -> bool:
    try:
        return path.is_dir() and holds_journal(path)
    except OSError:  # of somebody else; not what we look for
        return False
