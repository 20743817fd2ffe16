"""The command line: one module a command. Nothing imports this package but `python -m holdfast`."""

from holdfast.cli.main import main

__all__ = ["main"]
