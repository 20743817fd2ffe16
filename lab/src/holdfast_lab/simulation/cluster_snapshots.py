"""The snapshots of a shard in the simulated database, and what makes them: the witness, which replays every frame."""

import math
import random
from collections.abc import Callable, Iterable, Iterator

from holdfast.core import image
from holdfast.core.digest import DIGEST_VERSION
from holdfast.journal.snapshot import SnapshotHeader
from holdfast_lab.simulation.process import SimulatedProcess
from holdfast_lab.simulation.shard_log import ShardLog

_MAKING_US = (500, 60_000)


class SimulatedSnapshots:
    """The `SnapshotStore` of one shard."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[SnapshotHeader, list[bytes]]] = {}

    def snapshots(self) -> list[int]:
        """Returns the positions, oldest first."""
        return sorted(self._kept)

    def snapshot_header(self, position: int) -> SnapshotHeader:
        """Returns a header."""
        return self._kept[position][0]

    def snapshot_chunks(self, position: int) -> Iterator[bytes]:
        """Yields the chunks."""
        return iter(self._kept[position][1])

    def snapshot_bytes(self, position: int) -> int:
        """Returns the size."""
        return sum(map(len, self._kept[position][1]))

    def write_snapshot(self, header: SnapshotHeader, chunks: Iterable[bytes]) -> None:
        """Keeps a snapshot."""
        self._kept[header.position] = (header, list(chunks))

    def remove_snapshot(self, position: int, *, is_durable: bool = False) -> None:
        """Removes a snapshot."""
        del is_durable
        self._kept.pop(position, None)

    def free_bytes(self) -> float:
        """Returns infinity: nothing fills up."""
        return math.inf


class SnapshotMaker:
    """A `Builder`: makes a snapshot of everything that is confirmed."""

    def __init__(
        self, process: SimulatedProcess, rng: random.Random, log: ShardLog, snapshots: SimulatedSnapshots
    ) -> None:
        self._process = process
        self._rng = rng
        self._log = log
        self._snapshots = snapshots

    def start(self, done: Callable[[str], None]) -> None:
        """Makes a snapshot a little later."""
        self._process.enter(self._rng.randint(*_MAKING_US), "snapshot", lambda: self._make(done))

    def _make(self, done: Callable[[str], None]) -> None:
        shadow = self._log.witness.shadow
        if shadow.position:
            header = SnapshotHeader(
                digest_version=DIGEST_VERSION,
                cluster_id=bytes(16),
                position=shadow.position,
                link=self._log.link,
                log_time_ms=shadow.state.last_ms,
                digest=shadow.digest,
            )
            self._snapshots.write_snapshot(header, list(image.dump(shadow)))
        done("")
