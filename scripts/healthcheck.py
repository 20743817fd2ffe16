"""Checks whether a service can be reached: prints one JSON line, exits with 0 if it can and 1 if not."""

import argparse
import json
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

PORT_MAX = 65_535
MODES = "tcp: the port accepts connections; worker: a gRPC server, the worker's coordinator, answers on the port"
TIMEOUT = "time limit for a response (default: 1000 = 1 s)"


class Target(NamedTuple):
    """The address on which the service listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def check_tcp(target: Target, timeout_s: float) -> None:
    """Connects and disconnects; raises OSError if the connection fails."""
    with socket.create_connection((target.host, target.port), timeout_s):
        pass


def check_worker(target: Target, timeout_s: float) -> None:
    """Checks the coordinator that a worker needs; raises OSError unless a gRPC server answers at the target."""
    # Imported here: the tcp mode runs every few seconds and does not need it.
    import grpc  # noqa: PLC0415 - slow to load, and a TCP check does not need it

    with grpc.insecure_channel(str(target)) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            raise TimeoutError("no gRPC server answered in time") from None


CHECKS: Mapping[str, Callable[[Target, float], None]] = {"tcp": check_tcp, "worker": check_worker}


def parse_target(text: str) -> Target:
    host, separator, port = text.rpartition(":")
    if not (separator and host and port.isdecimal() and 0 < int(port) <= PORT_MAX):
        raise argparse.ArgumentTypeError(f"expected host:port, got {text!r}")
    return Target(host.strip("[]"), int(port))


def parse_timeout_ms(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"expected a positive number of milliseconds, got {text!r}")
    return int(text)


def problem_with(mode: str, target: Target, timeout_ms: int) -> str:
    """Returns the problem with the target; empty if it is healthy."""
    try:
        CHECKS[mode](target, timeout_ms / 1_000)
    except OSError as error:
        return str(error) or type(error).__name__
    return ""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.healthcheck", description=__doc__)
    parser.add_argument("--mode", choices=sorted(CHECKS), required=True, help=MODES)
    parser.add_argument(
        "--target", type=parse_target, required=True, metavar="HOST:PORT", help="address of the service"
    )
    parser.add_argument("--timeout-ms", type=parse_timeout_ms, default=1_000, metavar="MS", help=TIMEOUT)
    parser.add_argument("--service", default="", metavar="NAME", help="the value of `service` in the printed line")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    started_ns = time.monotonic_ns()
    problem = problem_with(options.mode, options.target, options.timeout_ms)
    line = {
        "ts_ms": time.time_ns() // 1_000_000,
        "level": "error" if problem else "info",
        "service": options.service,
        "method": "healthcheck",
        "event": "unhealthy" if problem else "healthy",
        "mode": options.mode,
        "target": str(options.target),
        "latency_ms": (time.monotonic_ns() - started_ns) // 1_000_000,
        "message": problem or "reachable",
    }
    print(json.dumps(line), flush=True)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
