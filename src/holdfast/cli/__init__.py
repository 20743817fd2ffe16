"""The command line: one module per command. Only `python -m holdfast` and other command modules import it."""

import os

# Child processes are spawned, never forked, so gRPC needs no fork support, which would log a warning for each child.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# gRPC's own log lines (for example about a lost connection) are not JSON and would break parsers of the log.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from holdfast.cli.main import main

__all__ = ["main"]
