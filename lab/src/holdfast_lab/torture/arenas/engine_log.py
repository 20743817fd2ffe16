"""Writes the log of engines that run in this process to a file beside the other logs, not to the terminal."""

import logging
from pathlib import Path

_LOGGER = "holdfast"


class EngineLog:
    """Redirects the log of Holdfast's own modules to a file, from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self._handler = logging.FileHandler(path, delay=True)

    def open(self) -> None:
        """Starts the redirection."""
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(self._handler)
        logger.propagate = False

    def close(self) -> None:
        """Ends the redirection."""
        logger = logging.getLogger(_LOGGER)
        logger.removeHandler(self._handler)
        logger.propagate = True
        self._handler.close()
