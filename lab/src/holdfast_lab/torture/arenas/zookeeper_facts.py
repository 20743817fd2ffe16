"""Facts from the nodes of an ensemble, and damage: nodes that must not exist once all jobs have ended.

Every server is read: a difference between servers is damage.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoNodeError, OperationTimeoutError, SessionExpiredError

from holdfast.core.model import Extra, Result
from holdfast.errors import HoldfastError
from holdfast.topologies.zookeeper.backend import records
from holdfast.topologies.zookeeper.backend.paths import Paths
from holdfast.topologies.zookeeper.backend.transactions import ReadNode, Stat
from holdfast_lab.history.records import TERMINAL, DamageFact, EndFact, JobFact, Record
from holdfast_lab.torture.arenas.job_facts import name_in
from holdfast_lab.torture.jobs import run_of

_STORE = "ensemble"
_CONNECT_S = 60.0
#: How often reading a server is tried: on a busy machine its leader may drop it meanwhile.
_READS_MAX = 5
_SESSION_S = 10.0
#: The number of concurrent requests.
_TOGETHER = 200
_PAYLOAD, _RESULT, _EXECUTIONS = "payload", "result", "executions"


def read(hosts: str, root: str) -> list[Record]:
    """Returns all facts below the root, as all servers know them after a sync."""
    return agreed({server: _told_by(server, root) for server in hosts.split(",")})


def agreed(told: Mapping[str, list[Record]]) -> list[Record]:
    """Returns the facts of the first server, and damage for each server with different facts."""
    (first, facts), *others = told.items()
    odds = {server: odd for server, found in others if (odd := set(facts) ^ set(found))}
    return [
        *facts,
        *(
            DamageFact(f"{server} and {first} differ in {len(odd)} facts, among them {min(map(str, odd))}")
            for server, odd in odds.items()
        ),
    ]


def _told_by(server: str, root: str) -> list[Record]:
    for _ in range(_READS_MAX - 1):
        with contextlib.suppress(ConnectionLoss, OperationTimeoutError, SessionExpiredError):
            return _read_once(server, root)
    return _read_once(server, root)


def _read_once(server: str, root: str) -> list[Record]:
    client = KazooClient(server, timeout=_SESSION_S)
    client.start(timeout=_CONNECT_S)
    try:
        client.sync(root)
        return list(_Nodes(client, Paths(root)).facts())
    finally:
        client.stop()
        client.close()


class _Nodes:
    """Reads many nodes concurrently."""

    def __init__(self, client: KazooClient, paths: Paths) -> None:
        self._client = client
        self._paths = paths

    def facts(self) -> Iterator[Record]:
        """Yields jobs, ends, and damage."""
        ids = self._ids()
        below = self._children([self._paths.record(job_id) for job_id in ids])
        nodes = self._get([self._paths.record(job_id) for job_id in ids])
        ended = [job_id for job_id, names in zip(ids, below, strict=True) if _RESULT in names]
        results = dict(zip(ended, self._get([self._paths.result(job_id) for job_id in ended]), strict=True))
        are_all_over = True
        for job_id, names, node in zip(ids, below, nodes, strict=True):
            try:
                record = records.kept_of(node).record
                result = records.result_of(results[job_id]) if job_id in results else None
            except HoldfastError as error:
                yield DamageFact(error.message, job_id)
                continue
            are_all_over &= record.state in TERMINAL
            yield from facts_of(record, result, set(names))
        if are_all_over:
            yield from self._left()

    def _ids(self) -> list[str]:
        shards = sorted({path.rpartition("/")[0] for path in map(self._paths.record, _SHARD_IDS)})
        return [job_id for names in self._children(shards) for job_id in names]

    def _left(self) -> Iterator[Record]:
        """Yields nodes of waiting, delayed or held jobs although every job has ended."""
        paths = self._paths
        for what, top, depth in (
            ("waits", paths.waiting, 3),
            ("is delayed", paths.delayed, 2),
            ("is held", paths.held, 2),
        ):
            level = [top]
            for _ in range(depth):
                below = self._children(level)
                level = [f"{path}/{name}" for path, names in zip(level, below, strict=True) for name in names]
            yield from (DamageFact(f"every job has ended, and one {what}: {path}") for path in level)

    def _children(self, paths: Sequence[str]) -> list[list[str]]:
        return self._together(self._client.get_children_async, paths, [])

    def _get(self, paths: Sequence[str]) -> list[ReadNode]:
        return [_node(*found) for found in self._together(self._client.get_async, paths, None)]

    def _together(self, ask: Callable[[str], Any], paths: Sequence[str], nothing: Any) -> list[Any]:  # noqa: ANN401
        """Returns the responses in order; for a missing node the response is `nothing`."""
        found = []
        for first in range(0, len(paths), _TOGETHER):
            for asked in [ask(path) for path in paths[first : first + _TOGETHER]]:
                try:
                    found.append(asked.get(timeout=_CONNECT_S))
                except NoNodeError:
                    found.append(nothing)
        return found


#: One id for each shard of jobs.
_SHARD_IDS = [f"{number:02x}" for number in range(256)]


def _node(data: bytes, stat: Any) -> ReadNode:  # noqa: ANN401 - kazoo has no types
    return ReadNode(data, Stat(stat.version, stat.czxid, stat.mzxid, stat.mtime, stat.ephemeralOwner, stat.numChildren))


def facts_of(record: records.Record, result: Result | None, names: set[str]) -> Iterator[Record]:
    """Yields the facts of one job from its record, its result, and the names of the nodes below the record."""
    said = record.extra or Extra()
    yield JobFact(
        id=record.id,
        name=name_in(said.labels),
        state=record.state,
        type=record.template.type,
        queue=record.template.queue,
        priority=record.template.priority,
        store=_STORE,
        key=said.request_id,
        not_before_ms=record.not_before_ms,
        created_ms=record.created_ms,
        grants=record.grants,
        token=result.token if result else 0,
        run=run_of(result.output) if result and result.output else "",
        retry_of=said.retry_of,
        reason=result.failure_reason if result else "",
    )
    if result is not None:
        yield EndFact(record.id, result.state, result.token)
    if (record.state in TERMINAL) != (result is not None) or (result is not None and result.state != record.state):
        ended = f"a result of {result.state}" if result else "no result"
        yield DamageFact(f"its record has the state {record.state}, and there is {ended}", record.id)
    if record.state in TERMINAL and (left := names - {_PAYLOAD, _RESULT, _EXECUTIONS}):
        yield DamageFact(f"it has ended, and has {', '.join(sorted(left))}", record.id)
