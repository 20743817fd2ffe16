"""A network namespace for a process; each direction of its traffic can be cut.

A pair of veths is its only connection: `outside` is our address on it, `inside` is that of the process. Servers stay on
loopback; a proxy listens on `outside` and forwards to them.

Each side has a permanent entry for the other's hardware address. To cut a direction, its sender gets a wrong address:
packets are sent, but not received, so nothing is refused or reset, and the other direction still works. That happens
below TCP, where no proxy has access. Names and addresses are random, so several namespaces can exist at a time.
Deleting the namespace removes everything. Namespaces of killed owners are removed by the next one.
"""

import functools
import ipaddress
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast_lab.torture.faults import leftovers

#: A range that is never routed (RFC 2544).
_RANGE = ipaddress.ip_network("198.18.0.0/15")
_NETWORK_BITS = 30
_ATTEMPTS = 20
_OUTSIDE, _INSIDE = "o", "i"
_NAMED = "holdfast-"
_NOBODY = "02:00:00:00:00:00"


@dataclass(frozen=True, slots=True)
class _Side:
    """One end of the pair of veths."""

    device: str
    address: str
    hardware: str


class Namespace:
    """A new namespace is connected.

    It implements the port `NetworkNamespace`; as a context manager it leaves nothing behind.
    """

    def __init__(self) -> None:
        """Raises `OSError` for the reasons that `lacking` returns."""
        self._ip = _ip_program()
        leftovers.sweep(self._take_away)
        mark = secrets.token_hex(4)
        self.name = f"{_NAMED}{mark}"
        network = _free_network(self._ip)
        ours, theirs = (str(address) for address in network.hosts())
        self._outside = _Side(_device(self.name, _OUTSIDE), ours, _hardware(mark, 1))
        self._inside = _Side(_device(self.name, _INSIDE), theirs, _hardware(mark, 2))
        #: Our address, for processes inside.
        self.outside = ours
        #: The address of processes inside.
        self.inside = theirs
        self._claim = leftovers.Claim(self.name)
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def command(self, argv: Sequence[str]) -> list[str]:
        """Wraps a command to run inside; `ip` executes it in place, so the pid is the command's own."""
        return [self._ip, "netns", "exec", self.name, *argv]

    def cut(self, *, towards_server: bool, towards_client: bool) -> None:
        """Drops packets of the given directions, and restores the others; clients are inside."""
        self._point(self._inside_ip, self._inside, self._outside, is_right=not towards_server)
        self._point(self._outside_ip, self._outside, self._inside, is_right=not towards_client)

    def mend(self) -> None:
        """Restores both directions."""
        self.cut(towards_server=False, towards_client=False)

    def sent(self, *, towards_server: bool) -> int:
        """Counts the packets sent in a direction so far: all pass our device, received or not."""
        counted = "rx_packets" if towards_server else "tx_packets"
        return int(Path(f"/sys/class/net/{self._outside.device}/statistics/{counted}").read_text())

    def close(self) -> None:
        """Deletes it; processes that are still inside have no network then. Idempotent."""
        self._take_away(self.name)
        self._claim.release()

    def _take_away(self, name: str) -> None:
        # Each separately: after a failure only one of them may exist.
        for words in (("link", "delete", _device(name, _OUTSIDE)), ("netns", "delete", name)):
            with suppress(OSError):
                self._outside_ip(*words)

    def _make(self) -> None:
        ours, theirs = self._outside, self._inside
        self._outside_ip("netns", "add", self.name)
        self._outside_ip(
            *("link", "add", ours.device, "address", ours.hardware, "type", "veth"),
            *("peer", "name", theirs.device, "address", theirs.hardware, "netns", self.name),
        )
        self._inside_ip("link", "set", "lo", "up")
        for run, side in ((self._outside_ip, ours), (self._inside_ip, theirs)):
            run("address", "add", f"{side.address}/{_NETWORK_BITS}", "dev", side.device)
            run("link", "set", side.device, "up")
        self.mend()

    def _point(self, run: Callable[..., None], sender: _Side, receiver: _Side, *, is_right: bool) -> None:
        hardware = receiver.hardware if is_right else _NOBODY
        run("neighbour", "replace", receiver.address, "lladdr", hardware, "dev", sender.device, "nud", "permanent")

    def _outside_ip(self, *words: str) -> None:
        _run(self._ip, *words)

    def _inside_ip(self, *words: str) -> None:
        _run(self._ip, "-n", self.name, *words)


@functools.cache
def lacking() -> str:
    """Returns the reason why this machine supports no namespace, or an empty string; tried once."""
    if os.geteuid() != 0:
        return "only root may make a network namespace"
    try:
        Namespace().close()
    except OSError as error:
        return f"no network namespace can be made: {error}"
    return ""


def _ip_program() -> str:
    found = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise FileNotFoundError("there is no ip command (package iproute2)")
    return found


def _device(name: str, side: str) -> str:
    """Returns a device name that is short enough for the kernel."""
    return f"hf{name.removeprefix(_NAMED)}{side}"


def _hardware(mark: str, side: int) -> str:
    """Returns a locally administered address, never `_NOBODY`."""
    return ":".join(["02", *(mark[at : at + 2] for at in range(0, len(mark), 2)), f"{side:02x}"])


def _free_network(program: str) -> ipaddress.IPv4Network:
    """Returns a network that no interface of this machine uses."""
    taken = _run(program, "-4", "-oneline", "address", "show")
    size = 1 << (_RANGE.max_prefixlen - _NETWORK_BITS)
    for _ in range(_ATTEMPTS):
        first = int(_RANGE.network_address) + size * secrets.randbelow(_RANGE.num_addresses // size)
        network = ipaddress.IPv4Network((first, _NETWORK_BITS))
        if not any(f" {address}/" in taken for address in network.hosts()):
            return network
    raise OSError(f"no free network in {_RANGE}")


def _run(program: str, *words: str) -> str:
    done = subprocess.run([program, *words], check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
