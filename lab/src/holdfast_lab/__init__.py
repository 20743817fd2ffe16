"""The laboratory of Holdfast: benchmarks, comparisons, torture with a judge, and the simulator."""

import os

# The lab starts processes while channels are open; gRPC would log a warning about each fork.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
