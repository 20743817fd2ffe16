"""What is written down when a request is not answered, whatever carried it."""

from holdfast.errors import HoldfastError, InternalError
from holdfast.logs import get_logger


def log_refusal(error: HoldfastError, method: str, peer: str, job_id: str = "") -> None:
    """One line for each request that is refused."""
    get_logger().warning(
        "refused",
        method=method,
        grpc_code=error.code.value,
        job_id=job_id[:128],
        reason=error.reason,
        peer=peer,
        message=error.message,
    )


def hidden(error: BaseException, method: str) -> InternalError:
    """Logs a bug with its insides; the caller is told none of them."""
    get_logger().error("bug", method=method, exc_info=error)
    return InternalError("the request could not be answered; the server's log says why")
