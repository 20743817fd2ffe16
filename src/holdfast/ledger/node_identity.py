"""The file `NODE` in a data directory: the node that the directory belongs to, written before any other data.

Invariants: the file appears whole or not at all; of two processes that start at the same time, one creates it; it never
changes. A directory whose jobs were accepted without nodes contains ids of every owner, so it cannot become one of
several nodes: clients would look for most of its jobs at the other nodes. Only its node may serve the directory of a
node: another server would accept request ids, unique keys and job ids that clients look for at other nodes. A single
node owns all keys, so neither rule applies to it.
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
    """Raises an error if the directory belongs to another node; otherwise writes the node into it. None: no nodes."""
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
    """Returns the node of the directory; None if it belongs to none."""
    path = directory / IDENTITY_NAME
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return msgspec.json.decode(text, type=Ownership)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FailedPreconditionError(
            f"{str(path)!r} names the node that this directory belongs to, and cannot be read: {error};"
            ' restore its content, {"index": I, "nodes": N}',
            reason="NODE_UNREADABLE",
        ) from error


def _refuse_parts(directory: Path) -> None:
    """Refuses a directory with folders of several processes: a single server would take it for empty."""
    topology, node = topology_of(directory), identity_of(directory / "node-0")
    if topology not in {"", "embedded"}:
        raise _is_of_several(directory, f"{topology} --nodes {node.nodes}" if node is not None else topology)


def _written(directory: Path, ownership: Ownership) -> Ownership:
    """Creates the file durably; if another process was first, returns its content."""
    prepare_directory(directory)
    temporary = directory / f"{IDENTITY_NAME}.{secrets.token_hex(4)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, msgspec.json.encode(ownership) + b"\n")
        os.fsync(descriptor)
        os.link(temporary, directory / IDENTITY_NAME)
    except FileExistsError:
        """Another process created it first; its content counts."""
    finally:
        os.close(descriptor)
        temporary.unlink()
    for folder in (directory, directory.parent):
        sync_directory(folder)
    found = identity_of(directory)
    assert found is not None, "the file was just created"
    return found


def _is_a_nodes(directory: Path, found: Ownership) -> FailedPreconditionError:
    command = f"holdfast node --index {found.index} --nodes {found.nodes} --data {directory}"
    return FailedPreconditionError(
        f"{str(directory)!r} belongs to {found}, but was opened without nodes: clients would look for its"
        f" new jobs at other nodes; start it with `{command}`, and connect to that",
        reason="NODE_MISMATCH",
    )


def _is_of_several(directory: Path, topology: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"{str(directory)!r} contains the data of several processes; start them with"
        f" `holdfast up --topology {topology} --data {directory}`, and connect to them",
        reason="TOPOLOGY_MISMATCH",
    )


def _is_nobodys(directory: Path, asked: Ownership) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"{str(directory)!r} holds jobs that were accepted without nodes, but was started as {asked}: clients"
        " would look for most of them at other nodes; choose an empty directory, or serve it with `holdfast server`",
        reason="NODE_MISMATCH",
    )


def _is_anothers(directory: Path, found: Ownership, asked: Ownership) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"{str(directory)!r} belongs to {found}, but was started as {asked}: the owners of its jobs would change;"
        f" start it with --index {found.index} --nodes {found.nodes}, or choose another directory",
        reason="NODE_MISMATCH",
    )
