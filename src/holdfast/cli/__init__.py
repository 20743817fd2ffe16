"""The command line: one module a command. Nothing imports this package but `python -m holdfast`."""

import os

# Children are spawned, never forked, so gRPC need not prepare for forks; it would complain on standard error at each.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from holdfast.cli.main import main

__all__ = ["main"]
