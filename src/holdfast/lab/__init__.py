"""The lab: measures this system against limits taken in the same run."""

import os

# The lab starts processes beside open channels; gRPC need not prepare for that, and would complain of each one.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
