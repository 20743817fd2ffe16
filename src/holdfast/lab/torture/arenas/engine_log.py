"""What is said of engines in this very process goes into a file beside the other logs, not onto a terminal."""

import logging
from pathlib import Path

_LOGGER = "holdfast"


class EngineLog:
    """From `open` to `close` all that Holdfast's own parts log here is in the file."""

    def __init__(self, path: Path) -> None:
        self._handler = logging.FileHandler(path, delay=True)

    def open(self) -> None:
        """Nothing is shown from now on."""
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(self._handler)
        logger.propagate = False

    def close(self) -> None:
        """As it was before."""
        logger = logging.getLogger(_LOGGER)
        logger.removeHandler(self._handler)
        logger.propagate = True
        self._handler.close()
