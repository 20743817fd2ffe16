"""`make bench-peers`: other job queues and Holdfast, as ratios to one yardstick of the same run."""

import argparse
import math
import signal
import sys
from importlib.metadata import version
from pathlib import Path

import msgspec
import uvloop
from rich.console import Console
from rich.markup import escape

from holdfast.errors import HoldfastError
from holdfast_lab.measure import machine
from holdfast_lab.measure.measures import conclude, progress
from holdfast_lab.peers import stores
from holdfast_lab.peers.plot import draw
from holdfast_lab.peers.report import markdown, put_between_markers, show
from holdfast_lab.peers.results import PeersResults, as_json, from_json
from holdfast_lab.peers.rounds import PeersPlan, run
from holdfast_lab.peers.systems import DEFAULT_SYSTEMS, SYSTEMS
from holdfast_lab.peers.targets import target_ratios

_WIDTH = 200
_SECONDS_MAX = 60


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number from 0 up, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= _SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"expected seconds, more than 0 and at most {_SECONDS_MAX}, got {text!r}")
    return value


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench-peers", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=DEFAULT_SYSTEMS, help="systems to measure")
    parser.add_argument("--rounds", type=_count, default=3, help="rounds of each measure of speed")
    parser.add_argument("--kills", type=_count, default=3, help="times that a worker of each system is killed")
    parser.add_argument("--seconds", type=_seconds, default=5.0, help="how long one trial should take")
    parser.add_argument("--json", type=Path, default=Path("build/bench-peers.json"), help="where the results go")
    parser.add_argument("--document", type=Path, help="also put tables between this document's markers")
    parser.add_argument("--plot", type=Path, help="also draw this picture")
    parser.add_argument("--again", action="store_true", help="measure nothing: show what the JSON file has")
    return parser.parse_args()


def measure(arguments: argparse.Namespace) -> PeersResults:
    """The whole run; its results are in the JSON file before anything is shown."""
    needed = {store.title: store for name in arguments.only if (store := SYSTEMS[name].store)}
    for store in needed.values():
        stores.ensure_installed(store)
    versions = [f"{title} {stores.version(store)}" for title, store in needed.items()]
    if stores.REDIS.title in needed:
        versions.append(f"redis-py {version('redis')}")
    plan = PeersPlan(arguments.only, rounds=arguments.rounds, kills=arguments.kills, seconds=arguments.seconds)
    results = uvloop.run(run(plan, machine.facts("`make bench-peers`", *versions), progress()))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_bytes(as_json(results))
    return results


def publish(arguments: argparse.Namespace, results: PeersResults) -> None:
    """Write the plot and the document, if they were asked for."""
    if arguments.plot:
        draw(results, arguments.plot)
    if arguments.document:
        put_between_markers(arguments.document, markdown(results, arguments.plot.name if arguments.plot else ""))


def main() -> int:
    """The exit status is 1 if a trial failed, or a target beside a peer was missed."""
    arguments = parse()
    console = Console(stderr=True)
    try:
        results = from_json(arguments.json.read_bytes()) if arguments.again else measure(arguments)
        show(results, Console(width=_WIDTH))
        publish(arguments, results)
        ratios = target_ratios(results)
        missed = conclude(ratios) if ratios else 0
    except (HoldfastError, FileNotFoundError, msgspec.DecodeError) as error:
        console.print(f"bench-peers: {escape(str(error))}")
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 1 if results.errors else missed


if __name__ == "__main__":
    sys.exit(main())
