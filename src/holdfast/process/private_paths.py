"""Creates and checks directories and files that only their owner may change.

A data directory contains jobs, tokens and a socket that requires no token. So a process serves it only if it belongs to
the process's own user and others have no rights to it; the owner's group may list it (0750), as with PostgreSQL. A file
of tokens or keys may also belong to root, which could read and replace it anyway.
"""

import os
import pwd
import secrets
import stat
from pathlib import Path

from holdfast.errors import FailedPreconditionError

#: Forbidden mode bits: the group may not write, and others have no rights.
_FORBIDDEN = 0o027
#: Forbidden mode bits where others may read.
_FORBIDDEN_CHANGES = 0o022
_ROOT = 0


def make_directory(path: Path) -> None:
    """Creates the directory and its missing parents with mode 0700, each durable before the next."""
    missing = []
    folder = path
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_directory(folder.parent)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_secret(path: Path, text: str) -> None:
    """Replaces a file that only this user may read by one line, atomically and durably."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(file, "w", encoding="ascii") as stream:  # noqa: PTH123 - a descriptor, not a path
            stream.write(f"{text}\n")
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def prepare_directory(path: Path) -> None:
    """Creates the directory, or sets mode 0700 if it is empty; then checks it as `check_directory` does."""
    make_directory(path)
    _close_empty(path, _FORBIDDEN)
    check_directory(path)


def prepare_holder(path: Path) -> None:
    """Prepares a directory for a file of tokens; then checks it as `check_holder` does."""
    make_directory(path)
    _close_empty(path, _FORBIDDEN_CHANGES)
    check_holder(path)


def _close_empty(path: Path, forbidden: int) -> None:
    """Sets mode 0700 on an empty directory of this user if its mode has forbidden bits."""
    found = path.stat()
    if found.st_uid == os.geteuid() and _is_open(found, forbidden) and not any(path.iterdir()):
        path.chmod(0o700)
        if any(path.iterdir()):  # another user created a file meanwhile
            path.chmod(stat.S_IMODE(found.st_mode))


def check_directory(path: Path, *, forbidden: int = _FORBIDDEN) -> None:
    """Raises `FailedPreconditionError` if another user owns the directory or has forbidden rights to it."""
    _check(path, {os.geteuid()}, forbidden, "mode 0700 or 0750")


def check_holder(path: Path) -> None:
    """Checks a directory with data directories or a file of tokens: others may read it, and it may belong to root.

    Earlier versions created the parent directory of several processes with a mode that depended on the umask. The mode
    of an empty directory is not checked: `prepare_directory` sets it to 0700.
    """
    forbidden = _FORBIDDEN_CHANGES if any(path.iterdir()) else 0
    _check(path, {os.geteuid(), _ROOT}, forbidden, "a mode that lets no other user write, such as 0700")


def _check(path: Path, owners: set[int], forbidden: int, mode: str) -> None:
    found = path.stat()
    if found.st_uid in owners and not _is_open(found, forbidden):
        return
    wanted = _name_of(os.geteuid())
    if found.st_uid not in owners:
        advice = f"run this as {_name_of(found.st_uid)}, or run `chown -R {wanted} {path}`"
    else:
        advice = f"check that no other user has changed anything in it, then run `chmod 700 {path}`"
    raise FailedPreconditionError(
        f"expected {str(path)!r} to belong to {wanted} with {mode}, got owner {_name_of(found.st_uid)} and mode"
        f" {_mode(found)}: another user could change its contents; {advice}",
        reason="DIRECTORY_NOT_PRIVATE",
    )


def problem_of_file(path: Path, found: os.stat_result) -> str:
    """Returns why other users may have access to a file with tokens or keys; empty if they have none."""
    if found.st_uid not in {os.geteuid(), _ROOT}:
        wanted = _name_of(os.geteuid())
        return f"expected it to belong to {wanted} or root, got {_name_of(found.st_uid)}; run `chown {wanted} {path}`"
    if _is_open(found):
        return f"expected mode 0600 or 0640, got {_mode(found)}: other users may use it; run `chmod 600 {path}`"
    return ""


def _is_open(found: os.stat_result, forbidden: int = _FORBIDDEN) -> bool:
    return bool(stat.S_IMODE(found.st_mode) & forbidden)


def _mode(found: os.stat_result) -> str:
    return f"{stat.S_IMODE(found.st_mode):04o}"


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
