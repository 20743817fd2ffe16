"""A connection with faults that a test chooses, to a real ensemble."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.core.model import Template
from holdfast.errors import UnavailableError
from holdfast.ports import Introduction, JobDraft
from holdfast.testing.conformance.workplace import Hand
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.kazoo_bridge import WatchEvent
from holdfast.topologies.zookeeper.backend.steward import Steward
from holdfast.topologies.zookeeper.backend.transactions import Create, Delete, ReadNode, Stat, Step, TransactionResult
from holdfast.topologies.zookeeper.backend.work_api import BidWork
from holdfast.topologies.zookeeper.backend.worker_session import BidSession
from tests.e2e.wait_until import eventually
from tests.zookeeper import Place

#: So long that no lease expires unless a test makes it.
LONG_MS = 30_000

T = TypeVar("T")
Matches = Callable[[Sequence[Step]], bool]


def makes(part: str) -> Matches:
    """Matches transactions that create a node whose path contains this."""
    return lambda steps: any(isinstance(step, Create) and part in step.path for step in steps)


def deletes(part: str) -> Matches:
    """Matches transactions that delete a node whose path contains this."""
    return lambda steps: any(isinstance(step, Delete) and part in step.path for step in steps)


SUBMITS, TAKES, ENDS, STANDS_IN_LINE = makes("/jobs/"), makes("/bid"), makes("/result"), makes("/lines/")


class Gate:
    """Blocks a request until the test opens it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        #: The outcome of a held transaction, also if its caller has been canceled.
        self.sent: asyncio.Future[TransactionResult] | None = None

    async def pass_by(self) -> None:
        self.reached.set()
        await self.opened.wait()


class FaultyConnection(EnsembleConnection):
    """A connection on which each fault affects only the next matching request."""

    def __init__(self, hosts: str, root: str, session_ms: int) -> None:
        super().__init__(hosts, root, session_ms)
        self._lost_answers: list[Matches] = []
        self._lost_requests: list[Matches] = []
        self._held: list[tuple[Matches, Gate]] = []
        self._held_reads: list[tuple[str, bool, Gate]] = []
        self._lost_reads: list[str] = []

    @property
    def are_all_fired(self) -> bool:
        """Whether every fault has happened; a test with an unused fault proves nothing."""
        return not (self._lost_answers or self._lost_requests or self._held or self._held_reads or self._lost_reads)

    def lose_answer(self, matches: Matches) -> None:
        """Makes the ensemble apply the transaction and drops its response."""
        self._lost_answers.append(matches)

    def lose_request(self, matches: Matches) -> None:
        """Drops the request before it reaches the ensemble."""
        self._lost_requests.append(matches)

    def hold(self, matches: Matches) -> Gate:
        """Holds the transaction until the gate is opened; it is then sent even if its caller has been canceled."""
        gate = Gate()
        self._held.append((matches, gate))
        return gate

    def hold_read(self, part: str, *, is_watched: bool = False) -> Gate:
        """Holds the result of the next read, or watched read, of a matching path until the gate is opened."""
        gate = Gate()
        self._held_reads.append((part, is_watched, gate))
        return gate

    def lose_read(self, part: str) -> None:
        """Drops the result of the next read of a matching path."""
        self._lost_reads.append(part)

    def transact(self, steps: list[Step]) -> "asyncio.Future[TransactionResult]":
        if _take(self._lost_requests, steps):
            return _failed()
        if _take(self._lost_answers, steps):
            return asyncio.ensure_future(_unheard(super().transact(steps)))
        for held in self._held:
            if held[0](steps):
                self._held.remove(held)
                held[1].sent = asyncio.ensure_future(self._later(held[1], steps))
                return asyncio.shield(held[1].sent)
        return super().transact(steps)

    async def _later(self, gate: Gate, steps: list[Step]) -> TransactionResult:
        await gate.pass_by()
        return await super().transact(steps)

    def exists(self, path: str, watch_event: WatchEvent | None = None) -> "asyncio.Future[Stat | None]":
        return self._told(super().exists(path, watch_event), path, watch_event)

    def get(self, path: str, watch_event: WatchEvent | None = None) -> "asyncio.Future[ReadNode | None]":
        return self._told(super().get(path, watch_event), path, watch_event)

    def children(self, path: str, watch_event: WatchEvent | None = None) -> "asyncio.Future[list[str] | None]":
        return self._told(super().children(path, watch_event), path, watch_event)

    def _told(self, answer: "asyncio.Future[T]", path: str, watch_event: WatchEvent | None) -> "asyncio.Future[T]":
        for part in self._lost_reads:
            if part in path:
                self._lost_reads.remove(part)
                return _failed()
        for held in self._held_reads:
            wanted, is_watched, gate = held
            if wanted in path and (watch_event is not None or not is_watched):
                self._held_reads.remove(held)
                return asyncio.ensure_future(_told_later(answer, gate))
        return answer


def _take(faults: list[Matches], steps: Sequence[Step]) -> bool:
    for matches in faults:
        if matches(steps):
            faults.remove(matches)
            return True
    return False


def _failed() -> "asyncio.Future[Any]":
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_exception(UnavailableError("the connection was lost", reason="ENSEMBLE_LOST"))
    return future


async def _unheard(done: "asyncio.Future[TransactionResult]") -> TransactionResult:
    await asyncio.wait([done])
    await _failed()
    raise AssertionError("expected `_failed` to raise")


async def _told_later(answer: "asyncio.Future[T]", gate: Gate) -> T:
    read = await answer
    await gate.pass_by()
    return read


async def _opened(hosts: str, root: str, session_ms: int) -> FaultyConnection:
    """Opens a connection, with a second attempt for a machine that pauses for seconds."""
    connection = FaultyConnection(hosts, root, session_ms)
    try:
        await connection.open()
    except UnavailableError:
        connection = FaultyConnection(hosts, root, session_ms)
        await connection.open()
    return connection


class Bidding:
    """Workers and clients of one root, driven by hand and closed at the end."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._clients: list[FaultyConnection] = []
        self._sessions: list[BidSession] = []
        self._connections: dict[str, FaultyConnection] = {}
        self.stewards: list[Steward] = []

    async def client(self) -> FaultyConnection:
        """Opens a connection for a client."""
        connection = await _opened(*self.place, LONG_MS)
        self._clients.append(connection)
        return connection

    async def worker(
        self, name: str, held: dict[int, str] | None = None, session_ms: int = LONG_MS, process: str = ""
    ) -> Hand:
        """Opens a worker for the type `job` and waits for its welcome; `process` names another process."""

        async def connecting(hosts: str, root: str, session_ms: int) -> FaultyConnection:
            made = self._connections[name] = await _opened(hosts, root, session_ms)
            return made

        work = BidWork(*self.place, session_ms=session_ms, connecting=connecting, process=process)
        session = await work.open(Introduction(name, frozenset({"job"}), slots=8, held=held or {}))
        self._sessions.append(session)
        hand = Hand(name, session)
        await hand.until(lambda: hand.welcome.lease_ms > 0)
        return hand

    async def idle(self, name: str, room: int = 1) -> Hand:
        """Opens a worker with free slots and waits until it stands in line."""
        hand = await self.worker(name)
        await hand.session.want(room)
        await until(lambda: is_waiting(hand))
        return hand

    def connection_of(self, name: str) -> FaultyConnection:
        """The connection of this worker's last session."""
        return self._connections[name]

    async def end(self) -> None:
        """Closes everything."""
        for session in self._sessions:
            await session.close()
        for steward in self.stewards:
            await steward.stop()
        for client in self._clients:
            await client.close()
        assert all(each.are_all_fired for each in [*self._clients, *self._connections.values()])


def is_waiting(hand: Hand) -> bool:
    """Whether a worker only waits for a watch."""
    assert isinstance(hand.session, BidSession)
    return hand.session.is_waiting


async def until(is_so: Callable[[], object]) -> None:
    """Waits until the condition holds."""
    await asyncio.to_thread(eventually, is_so)


JOB = Template("job")
DRAFT = JobDraft(payload=b"in")
