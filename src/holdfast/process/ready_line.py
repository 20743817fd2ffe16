"""The one line on standard output that says that a program works."""

import json
import sys
from collections.abc import Collection, Mapping

_NAMES_MAX = 8


def announce(line: Mapping[str, object], sentence: str) -> None:
    """JSON for the program that waits for it; on a terminal a sentence. In one piece, whatever else is printed."""
    sys.stdout.write(f"{sentence if sys.stdout.isatty() else json.dumps(line)}\n")
    sys.stdout.flush()


def few(names: Collection[str]) -> str:
    """The first names, and how many there are beside them."""
    shown = sorted(names)[:_NAMES_MAX]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def places(addresses: Mapping[str, str], *, is_secure: bool) -> str:
    """Where jobs are submitted and seen, as people are told; addresses by protocol, of gRPC perhaps several."""
    secure, grpc = "s" if is_secure else "", addresses["grpc"]
    page = f"; http{secure}://{addresses['http']}/ shows them" if "http" in addresses else ""
    return f'Holdfast("holdfast{secure}://{grpc}"), or --connect {grpc}{page}'
