"""Conversion between the values of workers and those of the dispatcher, for sessions on any transport."""

import re
from collections.abc import Iterable

import msgspec

from holdfast import limits
from holdfast.core.commands import GrantedLease
from holdfast.core.model import Extra
from holdfast.errors import InvalidArgumentError
from holdfast.ledger.sessions import Hello, SessionPush
from holdfast.ports import Assignment, Directive, Introduction


class LeaseTerms(msgspec.Struct, frozen=True):
    """The terms that a server sends to every worker first: intervals of leases and heartbeats, and its ledger."""

    lease_ms: int
    heartbeat_ms: int
    epoch: int = 0
    cluster_id: str = ""


_NAME = re.compile(limits.NAME_PATTERN)
_NO_EXTRA = Extra()


def directive_of(pushes: Iterable[SessionPush], terms: LeaseTerms) -> Directive:
    """Merges the messages for a worker; a welcome tells it the terms."""
    leases: list[Assignment] = []
    cancels: list[int] = []
    revoked: list[int] = []
    reported, is_welcome, is_drained, is_drain_asked, is_recalled = 0, False, False, False, False
    for push in pushes:
        leases += [assignment(lease) for lease in push.leases]
        cancels += push.cancels
        revoked += push.revoked
        reported = max(reported, push.reported)
        is_welcome |= push.is_welcome
        is_drained |= push.is_drained
        is_drain_asked |= push.is_drain_asked
        is_recalled |= push.is_recalled
    return Directive(
        leases,
        cancels,
        revoked,
        reported,
        terms.lease_ms if is_welcome else 0,
        terms.heartbeat_ms if is_welcome else 0,
        is_drained=is_drained,
        is_drain_asked=is_drain_asked,
        is_recalled=is_recalled,
        are_leases_renewed=is_welcome,
    )


def assignment(lease: GrantedLease) -> Assignment:
    """Converts a lease into an assignment for a worker."""
    template, extra = lease.template, lease.extra or _NO_EXTRA
    return Assignment(
        lease.token,
        lease.job_id,
        template.type,
        lease.payload,
        lease.attempt,
        template.timeout_ms,
        template.simulated,
        extra.work_duration_ms,
        extra.payload_size_bytes,
        dict(extra.labels),
        dict(extra.headers),
        template.queue,
        lease.retries_left,
    )


def hello_of(introduction: Introduction, *, is_local: bool = False) -> Hello:
    """Checks an introduction. `is_local`: the worker ends with the serving process, whatever it says."""
    types, queues = introduction.types, introduction.queues
    for what, names in (("worker_id", [introduction.worker_id]), ("types", types), ("queues", queues)):
        for name in names:
            if not _NAME.fullmatch(name):
                rule = f"1 to {limits.NAME_CHARS_MAX} letters, digits, '.', '_' or '-'"
                raise InvalidArgumentError(f"{what} must be {rule}, got {name[:80]!r}", reason="NAME_INVALID")
    if len(types) * max(1, len(queues)) > limits.LANES_MAX:
        raise InvalidArgumentError(
            f"types times queues must be at most {limits.LANES_MAX},"
            f" got {len(types)} types and {len(queues)} queues; name no queue to serve all of them",
            reason="HELLO_TOO_LARGE",
        )
    return Hello(
        introduction.worker_id,
        types,
        queues,
        max(0, introduction.slots),
        frozenset(introduction.held),
        introduction.instance[: limits.NAME_CHARS_MAX],
        is_local or introduction.dies_with_server,
    )
