"""The command line: one module a command. Nothing imports this package but `python -m holdfast`."""

import os

# Children are spawned, never forked, so gRPC need not prepare for forks; it would complain of each one.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Its own lines (a connection that went away, say) are no JSON and would spoil the log for whoever parses it.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from holdfast.cli.main import main

__all__ = ["main"]
