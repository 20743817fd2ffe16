"""The command line of a measurement that is run with `python -m`."""

import argparse
import sys

import msgspec


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser named after the module that runs, with the option `--json`."""
    spec = sys.modules["__main__"].__spec__
    made = argparse.ArgumentParser(
        prog=f"python -m {spec.name}" if spec else None,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", action="store_true", help="print the figures as JSON")
    return made


def show(figures: object, text: str, *, as_json: bool) -> None:
    """Print the figures for people, or all of them as JSON on one line."""
    print(msgspec.json.encode(figures).decode() if as_json else text)
