"""The TCP ports on which a process listens, as the kernel reports them."""

import os
from contextlib import suppress
from pathlib import Path

_LISTENS = "0A"
#: Columns of `/proc/PID/net/tcp`.
_ADDRESS, _STATE, _INODE = 1, 3, 9


def listening_ports(pid: int) -> list[int]:
    """Returns the ports in ascending order; empty if the process is gone or belongs to another user."""
    inodes = _sockets(pid)
    found = set[int]()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                columns = row.split()
                if columns[_STATE] == _LISTENS and columns[_INODE] in inodes:
                    found.add(int(columns[_ADDRESS].rpartition(":")[2], 16))
    return sorted(found)


def _sockets(pid: int) -> set[str]:
    """Returns the inodes of the sockets of a process."""
    found = set[str]()
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # it was closed meanwhile
                kind, _, inode = str(Path(entry.path).readlink()).partition(":")
                if kind == "socket":
                    found.add(inode.strip("[]"))
    return found
