"""The probes: which functions of the product are wrapped, and the name of the hop that each marks."""

import functools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

START, END = "start", "end"


class Probe(NamedTuple):
    """One probe: `role` is the process it belongs to, `place` the function, `at` its start or its end."""

    role: str
    hop: str
    place: str
    at: str = START


CLIENT = (
    Probe("client", "encode the request", "holdfast.client.blocking_transport:encoded_call"),
    Probe("client", "request sent", "holdfast.client.blocking_transport:BlockingTransport._reply"),
    Probe("client", "reply received", "holdfast.client.blocking_transport:BlockingTransport._reply", END),
)
EMBEDDED = (
    Probe(
        "client", "hand over to the loop's thread", "holdfast.topologies.embedded.blocking_ledger:BlockingLedger._soon"
    ),
)
SERVER = (
    Probe("server", "bytes read", "holdfast.server.wire.connection:WireConnection.data_received"),
    Probe("server", "command queued", "holdfast.ledger.coordinator:Coordinator._enqueue"),
    Probe("server", "turn begins", "holdfast.ledger.coordinator:Coordinator._run_turn"),
    Probe("server", "frame closed", "holdfast.ledger.group_commit:GroupCommit.flush"),
    Probe("server", "write begins", "holdfast.journal.file:FileJournal.write"),
    Probe("disk", "frame durable", "holdfast.journal.file:FileJournal.write", END),
    Probe("server", "reply to the frame", "holdfast.ledger.group_commit:GroupCommit._on_synced"),
    Probe("server", "reply sent", "holdfast.server.wire.conversation:Conversation._answer", END),
    Probe("server", "message to the worker", "holdfast.server.wire.worker_session:ServedWorker._write", END),
)
WORKER = (
    Probe("worker", "lease received", "holdfast.client.wire_work:WireSession._take"),
    Probe("worker", "lease taken", "holdfast.worker.slots:Slots.take"),
    Probe("worker", "function begins", "holdfast.worker.executors.threads:_outcome"),
    Probe("worker", "function ends", "holdfast.worker.executors.threads:_outcome", END),
    Probe("worker", "outcome collected", "holdfast.worker.executors.threads:ThreadExecutor._collect"),
    Probe("worker", "report queued", "holdfast.client.wire_work:WireSession.report"),
    Probe("worker", "report sent", "holdfast.client.wire_work:WireSession._flush", END),
)
ROLES = {"client": (*CLIENT, *EMBEDDED), "server": SERVER, "worker": WORKER, "embedded": (*EMBEDDED, *SERVER)}


class Recorder:
    """Wraps the functions of some probes, and stores the times in memory."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        self._marks: list[tuple[int, str, str]] = []
        for probe in probes:
            self._install(probe)

    def _install(self, probe: Probe) -> None:
        module, _, name = probe.place.partition(":")
        owner_name, _, attribute = name.rpartition(".")
        owner: Any = resolve_name(f"{module}:{owner_name}") if owner_name else resolve_name(module)
        setattr(owner, attribute, self._wrapped(getattr(owner, attribute), probe))

    def _wrapped(self, function: Callable[..., Any], probe: Probe) -> Callable[..., Any]:
        marks, role, hop = self._marks, probe.role, probe.hop
        now = time.monotonic_ns

        @functools.wraps(function)
        def at_start(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any function
            marks.append((now(), role, hop))
            return function(*args, **kwargs)

        @functools.wraps(function)
        def at_end(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any function
            result = function(*args, **kwargs)
            marks.append((now(), role, hop))
            return result

        return at_start if probe.at == START else at_end

    def write(self, path: Path) -> None:
        """Writes all marks as JSON."""
        path.write_text(json.dumps(self._marks))


def read_marks(path: Path) -> list[tuple[int, str, str]]:
    """Reads the marks of one process."""
    return [(at, role, hop) for at, role, hop in json.loads(path.read_text())]
