"""Log lines for refused requests and for bugs, for every protocol."""

from holdfast.errors import HoldfastError, InternalError
from holdfast.observe.logs import get_logger

#: The peer name of callers over the socket of a directory: processes of the same user.
SOCKET_PEER = "unix"
_MISSING = "CAPABILITY_MISSING"


def log_refusal(error: HoldfastError, method: str, peer: str, job_id: str = "") -> None:
    """Logs one line for each refused request.

    A request over the socket of a directory is logged at info: the program that serves the directory may be a user's
    own, or the command that made the request, and the caller receives the error anyway. A request for a capability that
    the topology lacks is logged at info, too: nothing is wrong with the server.
    """
    is_expected = peer == SOCKET_PEER or error.reason == _MISSING
    log = get_logger().info if is_expected else get_logger().warning
    log(
        "refused",
        method=method,
        grpc_code=error.code.value,
        job_id=job_id[:128],
        reason=error.reason,
        peer=peer,
        message=error.message,
    )


def hidden(error: BaseException, method: str) -> InternalError:
    """Logs a bug with its traceback, and returns an error without details for the caller."""
    get_logger().error("bug", method=method, exc_info=error)
    return InternalError("the request failed with an internal error; the server's log says why")
