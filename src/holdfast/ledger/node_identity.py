"""Which node a data directory belongs to, written into it once, before anything else is.

Invariants: the file appears whole or not at all, and only one of two processes that come at the same time makes it; it
never changes afterwards. A directory whose jobs were accepted without nodes has ids of every owner, so no node of
several may have it: clients would ask the others for most of its jobs. And nobody but its node may serve the directory
of one: it would accept request ids, unique keys and job ids that clients look for elsewhere. One node alone owns
everything, so that neither matters for it.
"""

import os
import secrets
from pathlib import Path

import msgspec

from holdfast.core.owner import Ownership
from holdfast.errors import FailedPreconditionError
from holdfast.process.directory_owner import holds_jobs, topology_of
from holdfast.process.private_paths import prepare_directory, sync_directory

IDENTITY_NAME = "NODE"


def claim(directory: Path, asked: Ownership | None) -> None:
    """Refuses a directory that is not for whom it is asked for; writes down whose it is from now on."""
    found = identity_of(directory)
    if asked is None:
        if found is not None and not found.is_everything:
            raise _is_a_nodes(directory, found)
        if not holds_jobs(directory):
            _refuse_parts(directory)
        return
    if found is None:
        if not asked.is_everything and holds_jobs(directory):
            raise _is_nobodys(directory, asked)
        found = _written(directory, asked)
    if found != asked:
        raise _is_anothers(directory, found, asked)


def identity_of(directory: Path) -> Ownership | None:
    """Whose the directory is; None if it was never a node's."""
    path = directory / IDENTITY_NAME
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return msgspec.json.decode(text, type=Ownership)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FailedPreconditionError(
            f"{str(path)!r} should say which node this directory belongs to, and cannot be read: {error};"
            ' write {"index": I, "nodes": N} into it as it was',
            reason="NODE_UNREADABLE",
        ) from error


def _refuse_parts(directory: Path) -> None:
    """What has its jobs in folders of several processes would look empty to one that serves it alone."""
    topology, node = topology_of(directory), identity_of(directory / "node-0")
    if topology not in {"", "embedded"}:
        raise _is_of_several(directory, f"{topology} --nodes {node.nodes}" if node is not None else topology)


def _written(directory: Path, ownership: Ownership) -> Ownership:
    """Makes the file, durably; what somebody else has just made is found instead."""
    prepare_directory(directory)
    temporary = directory / f"{IDENTITY_NAME}.{secrets.token_hex(4)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, msgspec.json.encode(ownership) + b"\n")
        os.fsync(descriptor)
        os.link(temporary, directory / IDENTITY_NAME)
    except FileExistsError:
        """Whoever was quicker decides."""
    finally:
        os.close(descriptor)
        temporary.unlink()
    for folder in (directory, directory.parent):
        sync_directory(folder)
    found = identity_of(directory)
    assert found is not None, "it was there a moment ago"
    return found


def _is_a_nodes(directory: Path, found: Ownership) -> FailedPreconditionError:
    command = f"holdfast node --index {found.index} --nodes {found.nodes} --data {directory}"
    return FailedPreconditionError(
        f"{str(directory)!r} belongs to {found}, and was to be opened without nodes: jobs that it accepted so"
        f" would be looked for elsewhere; start it with `{command}`, and connect to that",
        reason="NODE_MISMATCH",
    )


def _is_of_several(directory: Path, topology: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"{str(directory)!r} has its jobs in folders of several processes: start them with"
        f" `holdfast up --topology {topology} --data {directory}`, and connect to them",
        reason="TOPOLOGY_MISMATCH",
    )


def _is_nobodys(directory: Path, asked: Ownership) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"{str(directory)!r} holds jobs that were accepted without nodes, and was to be {asked}: clients would ask"
        " other nodes for most of them; choose an empty directory, or serve it with `holdfast server`",
        reason="NODE_MISMATCH",
    )


def _is_anothers(directory: Path, found: Ownership, asked: Ownership) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"{str(directory)!r} belongs to {found}, and was to be {asked}: the owners of its jobs would change;"
        f" start it with --index {found.index} --nodes {found.nodes}, or choose another directory",
        reason="NODE_MISMATCH",
    )
