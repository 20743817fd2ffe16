"""A network of its own for a process, of which one direction can be taken away.

A namespace is joined to ours by a pair of veths and nothing else: `outside` is our address there, `inside` is that of
whoever lives in it. Servers stay on loopback: a proxy of ours listens on `outside` and leads on.

Each side knows the other's hardware address for good. A direction is cut by telling its sender a wrong one: packets go
out and nobody takes them, so nothing is refused or reset, and the other direction is as good as before. That is below
TCP, where no proxy gets. Names and addresses are drawn, so several can be at a time; with the namespace all goes.
What a killed owner has left behind is taken away by the next.
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

from holdfast.lab.torture.faults import leftovers

#: Of networks that nobody routes to (RFC 2544).
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
    """Made, it is there and whole. Implements the port `Island`; a context manager that leaves nothing behind."""

    def __init__(self) -> None:
        """Raises `OSError` where `lacking` says why not."""
        self._ip = _ip_program()
        leftovers.sweep(self._take_away)
        mark = secrets.token_hex(4)
        self.name = f"{_NAMED}{mark}"
        network = _free_network(self._ip)
        ours, theirs = (str(address) for address in network.hosts())
        self._outside = _Side(_device(self.name, _OUTSIDE), ours, _hardware(mark, 1))
        self._inside = _Side(_device(self.name, _INSIDE), theirs, _hardware(mark, 2))
        #: Our address, for those inside.
        self.outside = ours
        #: The address of those inside.
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
        """The same command, inside; it becomes the process that is started, so a pid is the command's own."""
        return [self._ip, "netns", "exec", self.name, *argv]

    def cut(self, *, towards_server: bool, towards_client: bool) -> None:
        """What is sent in a direction is lost; what is not named is whole again. Clients are inside."""
        self._point(self._inside_ip, self._inside, self._outside, is_right=not towards_server)
        self._point(self._outside_ip, self._outside, self._inside, is_right=not towards_client)

    def mend(self) -> None:
        """Both directions are whole."""
        self.cut(towards_server=False, towards_client=False)

    def sent(self, *, towards_server: bool) -> int:
        """Packets that were sent in a direction so far: all of them pass our end, whether anybody takes them or not."""
        counted = "rx_packets" if towards_server else "tx_packets"
        return int(Path(f"/sys/class/net/{self._outside.device}/statistics/{counted}").read_text())

    def close(self) -> None:
        """Takes it away; whoever still lives in it has no network. A second time does nothing."""
        self._take_away(self.name)
        self._claim.release()

    def _take_away(self, name: str) -> None:
        # Each for itself: after a failure, only some of it may be there.
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
    """Why there can be no namespace on this machine; empty if there can. Tried once."""
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
    """Short enough for the kernel."""
    return f"hf{name.removeprefix(_NAMED)}{side}"


def _hardware(mark: str, side: int) -> str:
    """One of those that nobody has by birth, and never that of nobody."""
    return ":".join(["02", *(mark[at : at + 2] for at in range(0, len(mark), 2)), f"{side:02x}"])


def _free_network(program: str) -> ipaddress.IPv4Network:
    """A network that no interface of ours has yet."""
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
