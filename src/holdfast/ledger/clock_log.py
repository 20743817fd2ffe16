"""Log lines about a wall clock that is in doubt (see `log_clock`)."""

from holdfast.ledger.log_clock import LogClock
from holdfast.observe.logs import get_logger


def log_doubts(clock: LogClock) -> None:
    """Logs the beginning and the end of each doubt, including one at the start."""
    clock.when_doubted = _tell
    if clock.ahead_ms:
        _tell(clock.ahead_ms)
    if clock.confirmed_ms:
        message = (
            f"the wall clock is {_words(clock.confirmed_ms)} ahead of the log, as it was before; the server follows it"
        )
        get_logger().warning("clock_believed", ahead_ms=clock.confirmed_ms, message=message)


def _tell(ahead_ms: int) -> None:
    if ahead_ms:
        message = (
            f"the wall clock is {_words(ahead_ms)} ahead of the log; the server ignores the jump, and"
            " follows the wall clock after ten minutes, or if the next start finds it ahead as well"
        )
        get_logger().warning("clock_doubted", ahead_ms=ahead_ms, message=message)
    else:
        get_logger().warning("clock_settled", message="the wall clock and the log agree again")


def _words(ms: int) -> str:
    """Formats a duration in days and hours."""
    days, hours = divmod(ms // 3_600_000, 24)
    return f"{days} d {hours} h" if days else f"{hours} h"
