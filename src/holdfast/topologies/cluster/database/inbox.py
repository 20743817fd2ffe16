"""`JobInbox` on PostgreSQL: the rows that `holdfast.submit` has inserted."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import psycopg

from holdfast.core.commands import Refusal
from holdfast.core.model import BackoffRule, Extra, NewJob, Template
from holdfast.postgres.statements import statements
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.failures import meaning_of
from holdfast.topologies.cluster.database.session import DatabaseSession
from holdfast.topologies.cluster.ports import Append, InboxRow

_SQL = statements(__package__, "inbox")

_pairs = msgspec.json.Decoder(dict[str, str]).decode


class PostgresInbox:
    """The inbox of one shard, for its leader. One thread at a time calls it."""

    def __init__(self, address: DatabaseAddress, shard: int) -> None:
        self._session = DatabaseSession(address)
        self._shard = shard

    def waiting(self, rows_max: int, bytes_max: int, besides: Collection[int] = ()) -> list[InboxRow]:
        """Returns the first rows but those of `besides`: at least one if there is one, else about `bytes_max`."""
        arguments = {"shard": self._shard, "rows_max": rows_max, "bytes_max": max(1, bytes_max)}
        rows = self._session.read(_SQL["waiting"], {**arguments, "besides": list(besides)})
        return [_inbox_row(row) for row in rows]

    def reject(self, refusals: Mapping[int, Refusal], epoch: int) -> Append:
        """Moves rows to the rejected ones, with their reasons, under `epoch`; a row that is gone is passed over."""
        arguments: dict[str, Any] = {
            "shard": self._shard,
            "epoch": epoch,
            "rows": list(refusals),
            "reasons": [refusal.reason for refusal in refusals.values()],
            "messages": [refusal.message for refusal in refusals.values()],
        }
        try:
            reply = self._session.ask(_SQL["reject"], arguments)
        except psycopg.Error as error:
            raise meaning_of(error) from error
        outcome = Append(reply.rows[0][0])
        return outcome if reply.is_confirmed else Append.UNCONFIRMED

    def close(self) -> None:
        """Closes the connection; harmless if there is none."""
        self._session.close()


def _inbox_row(row: Sequence[Any]) -> InboxRow:
    number, submitted_ms, name, queue, priority, max_attempts, max_losses, timeout_ms, backoff, *rest = row
    rule = BackoffRule(*backoff) if backoff else BackoffRule()
    template = Template(name, queue, priority, max_attempts, max_losses, timeout_ms, rule)
    return InboxRow(number, submitted_ms, template, _job(*rest))


def _job(
    job_id: str, payload: bytes, not_before_ms: int, request_id: str, labels: str, headers: str, unique_key: str
) -> NewJob:
    extra = Extra(request_id, _sorted_pairs(labels), _sorted_pairs(headers), unique_key=unique_key)
    return NewJob(job_id, 0, payload, not_before_ms, None if extra == Extra() else extra)


def _sorted_pairs(text: str | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(_pairs(text).items())) if text else ()
