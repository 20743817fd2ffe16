"""Converts the results and errors of kazoo into our own.

Invariant: an error of kazoo that is not a reply of the ensemble means that it is unknown what the ensemble has done.
"""

from typing import Any

from kazoo import exceptions as kazoo_errors

from holdfast.errors import FailedPreconditionError, HoldfastError, InternalError, UnavailableError
from holdfast.topologies.zookeeper.backend.transactions import (
    Put,
    RefusedError,
    Stat,
    Step,
    StepFailure,
    TransactionResult,
)

_WHY = {
    kazoo_errors.NodeExistsError: StepFailure.EXISTS,
    kazoo_errors.NoNodeError: StepFailure.MISSING,
    kazoo_errors.BadVersionError: StepFailure.CHANGED,
    kazoo_errors.NotEmptyError: StepFailure.NOT_EMPTY,
}
#: Results of the steps that did not cause the failure of their transaction.
_BYSTANDERS = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
#: Result of the first step if the session, and not a step, caused the failure.
_SESSION_OVER = (kazoo_errors.SessionExpiredError, kazoo_errors.SessionMovedError)
_NOT_ALLOWED = (kazoo_errors.NoAuthError, kazoo_errors.AuthFailedError)


def stat_of(stat: Any) -> Stat:  # noqa: ANN401 - the library's own tuple
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.mtime, stat.ephemeralOwner, stat.numChildren)


def stat_or_none(stat: Any) -> Stat | None:  # noqa: ANN401 - the library's own tuple
    return None if stat is None else stat_of(stat)


def done_of(steps: list[Step], results: list[Any]) -> TransactionResult:
    for index, result in enumerate(results):
        if isinstance(result, _SESSION_OVER + _NOT_ALLOWED):
            raise error_of(result)
        if isinstance(result, Exception) and not isinstance(result, _BYSTANDERS):
            raise RefusedError(index, steps[index], _WHY.get(type(result), StepFailure.OTHER))
    if any(isinstance(result, Exception) for result in results):
        raise InternalError("ZooKeeper rolled a transaction back without naming a failed step")
    paths = [result if isinstance(result, str) else "" for result in results]
    stats = [stat_of(result) if isinstance(step, Put) else None for step, result in zip(steps, results, strict=True)]
    return TransactionResult(paths, stats)


def none_if_missing(error: Exception) -> HoldfastError | None:
    return None if isinstance(error, kazoo_errors.NoNodeError) else error_of(error)


def error_of(error: Exception) -> HoldfastError:
    """Converts an error. Errors that are replies were handled before; the others leave the outcome unknown."""
    name = type(error).__name__
    if isinstance(error, _NOT_ALLOWED):
        message = (
            f"ZooKeeper does not allow this ({name}): the nodes are protected by other credentials than this process"
            " has; name the file that holds them, as in zk://host:port/path?auth_file=FILE"
        )
        return FailedPreconditionError(message, reason="ENSEMBLE_REFUSED")
    return unknown(f"the connection to ZooKeeper was lost ({name})")


def unknown(message: str) -> UnavailableError:
    return UnavailableError(message, reason="ENSEMBLE_LOST")
