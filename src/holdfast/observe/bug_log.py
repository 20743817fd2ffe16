"""Where the traceback of a mistake in the program goes: into the log, whoever serves the ledger."""

from holdfast.core.events import AnyEvent
from holdfast.core.ledger import Ledger
from holdfast.observe.logs import get_logger


class BugLog:
    """An observer of a coordinator that speaks of nothing else."""

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Nothing to say."""

    def durable(self, position: int) -> None:
        """Nothing to say."""

    def bug(self, command: object, error: Exception) -> None:
        """Whoever asked was told that the log says more."""
        get_logger().error("bug", message=f"{type(command).__name__} could not be decided", exc_info=error)
