"""The server's log lines about a wall clock that is in doubt."""

from holdfast.ledger.log_clock import LogClock
from holdfast.observe.logs import get_logger


def log_doubts(clock: LogClock) -> None:
    """Logs when a doubt begins and when it ends, the one of the start included."""
    clock.when_doubted = _tell
    if clock.ahead_ms:
        _tell(clock.ahead_ms)
    if clock.confirmed_ms:
        message = (
            f"the wall clock is {_words(clock.confirmed_ms)} ahead of the log as it was before; the server believes it"
        )
        get_logger().warning("clock_believed", ahead_ms=clock.confirmed_ms, message=message)


def _tell(ahead_ms: int) -> None:
    if ahead_ms:
        message = (
            f"the wall clock is {_words(ahead_ms)} ahead of the log; the server goes on in log time, and"
            " believes the wall clock after ten minutes, or if the next start finds it ahead as well"
        )
        get_logger().warning("clock_doubted", ahead_ms=ahead_ms, message=message)
    else:
        get_logger().warning("clock_settled", message="the wall clock and the log agree again")


def _words(ms: int) -> str:
    """As people say it: in days and hours."""
    days, hours = divmod(ms // 3_600_000, 24)
    return f"{days} d {hours} h" if days else f"{hours} h"
