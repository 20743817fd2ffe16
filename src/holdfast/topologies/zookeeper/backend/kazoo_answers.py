"""What the client library answers, in our own values and errors.

Invariant: what is left of the library's errors, once those that are answers are taken out, means that it is unknown
what the ensemble has done.
"""

from typing import Any

from kazoo import exceptions as kazoo_errors

from holdfast.errors import FailedPreconditionError, HoldfastError, InternalError, UnavailableError
from holdfast.topologies.zookeeper.backend.transactions import Done, Put, RefusedError, Stat, Step, StepFailure

_WHY = {
    kazoo_errors.NodeExistsError: StepFailure.EXISTS,
    kazoo_errors.NoNodeError: StepFailure.MISSING,
    kazoo_errors.BadVersionError: StepFailure.CHANGED,
    kazoo_errors.NotEmptyError: StepFailure.NOT_EMPTY,
}
#: What the other steps of a transaction are told that failed.
_BYSTANDERS = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
#: What its first step is told if nothing is wrong with any of them, but with the session.
_SESSION_OVER = (kazoo_errors.SessionExpiredError, kazoo_errors.SessionMovedError)
_NOT_ALLOWED = (kazoo_errors.NoAuthError, kazoo_errors.AuthFailedError)


def stat_of(stat: Any) -> Stat:  # noqa: ANN401 - the library's own tuple
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.mtime, stat.ephemeralOwner, stat.numChildren)


def stat_or_none(stat: Any) -> Stat | None:  # noqa: ANN401 - the library's own tuple
    return None if stat is None else stat_of(stat)


def done_of(steps: list[Step], results: list[Any]) -> Done:
    for index, result in enumerate(results):
        if isinstance(result, _SESSION_OVER + _NOT_ALLOWED):
            raise error_of(result)
        if isinstance(result, Exception) and not isinstance(result, _BYSTANDERS):
            raise RefusedError(index, steps[index], _WHY.get(type(result), StepFailure.OTHER))
    if any(isinstance(result, Exception) for result in results):
        raise InternalError("ZooKeeper rolled a transaction back without saying why")
    paths = [result if isinstance(result, str) else "" for result in results]
    stats = [stat_of(result) if isinstance(step, Put) else None for step, result in zip(steps, results, strict=True)]
    return Done(paths, stats)


def none_if_missing(error: Exception) -> HoldfastError | None:
    return None if isinstance(error, kazoo_errors.NoNodeError) else error_of(error)


def error_of(error: Exception) -> HoldfastError:
    """What of the library's errors is an answer is taken out before; what is left is no answer."""
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
