"""A small state machine that stores words, and disks and threads for its keeper."""

import asyncio
from collections.abc import Callable, Iterable, Iterator

import msgspec

from holdfast.core.commands import Refusal
from holdfast.core.digest import DIGEST_VERSION
from holdfast.errors import Code
from holdfast.journal.disk import Disk
from holdfast.ledger.snapshot_keeper import Builder
from holdfast.ledger.snapshot_policy import KeeperConfig
from holdfast.testing.clock import ManualClock
from holdfast.topologies.microservices.services.owner import SNAPSHOTS, OwnerDecision, OwnerPorts, StateOwner

Done = Callable[[int | BaseException], None]
COMPACT_BYTES = SNAPSHOTS.snapshot_bytes
REFUSAL = Refusal(Code.NOT_FOUND, "NO_WORD", "there is no such word")


class Words:
    """Words in the order of their events."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.digest = 0
        self.digest_version = DIGEST_VERSION

    def rehash(self, version: int) -> None:
        assert version == DIGEST_VERSION, "words have one digest"

    def encode(self, event: str) -> bytes:
        return msgspec.msgpack.encode(event)

    def decode(self, data: bytes) -> str:
        return msgspec.msgpack.decode(data, type=str)

    def apply(self, event: str) -> None:
        self.words.append(event)
        for letter in event.encode():
            self.digest = (self.digest * 0x100000001B3 ^ letter) & 0xFFFFFFFFFFFFFFFF

    def empty(self) -> "Words":
        return type(self)()

    def image(self) -> Iterator[bytes]:
        yield msgspec.msgpack.encode(self.digest)
        for word in self.words:
            yield msgspec.msgpack.encode(word)

    def restore(self, chunks: Iterable[bytes]) -> None:
        parts = [msgspec.msgpack.decode(chunk) for chunk in chunks]
        self.digest, self.words = parts[0], parts[1:]


class Here:
    """Runs the work at once, on the loop's thread, and passes on its result or error."""

    def run(self, work: Callable[[], int], done: Done, *, is_lone: bool) -> None:
        try:
            result: int | BaseException = work()
        except BaseException as error:  # noqa: BLE001 - a simulated power cut is one
            result = error
        done(result)


class Held:
    """Runs the work when the test says so."""

    def __init__(self) -> None:
        self.held: list[tuple[Callable[[], int], Done]] = []

    def run(self, work: Callable[[], int], done: Done, *, is_lone: bool) -> None:
        self.held.append((work, done))

    def go(self) -> None:
        work, done = self.held.pop(0)
        Here().run(work, done, is_lone=True)


def compacting(limit_bytes: int) -> KeeperConfig:
    """A snapshot as soon as the journal has grown by this much."""
    return msgspec.structs.replace(SNAPSHOTS, snapshot_bytes=limit_bytes, look_ms=0)


def keeper_on(  # noqa: PLR0913 - each test sets one or two of them
    disk: Disk,
    machine: Words,
    *,
    sync: Here | Held | None = None,
    aside: Here | Held | None = None,
    clock: ManualClock | None = None,
    failures: list[BaseException] | None = None,
    compact_bytes: int = COMPACT_BYTES,
    maker: Builder | None = None,
) -> StateOwner:
    """Opens a keeper on a disk of the test, on the running loop."""
    clock = clock or ManualClock()
    fatal = (failures if failures is not None else []).append
    ports = OwnerPorts(clock, asyncio.get_running_loop(), sync or Here(), aside or Here(), fatal)
    return StateOwner.on_disk(
        machine,
        disk,
        ports=lambda: ports,
        now_ms=clock.wall_ms(),
        snapshots=compacting(compact_bytes),
        maker=maker,
    )


def say(word: str) -> Callable[[int], OwnerDecision]:
    """Returns a decision that adds the word; the reply is the word."""
    return lambda _now_ms: OwnerDecision(word, word)
