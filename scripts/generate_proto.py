"""Generates src/holdfast/proto from proto/*.proto, or with --check reports whether it is up to date."""

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "proto"
GENERATED = ROOT / "src" / "holdfast" / "proto"

# protoc generates `import x_pb2`, which only works if the folder itself is on sys.path.
_PLAIN_IMPORT = re.compile(r"^import (\w+_pb2\b)", re.MULTILINE)


def generate() -> dict[str, str]:
    """Returns the text of every generated file, by name."""
    with tempfile.TemporaryDirectory() as folder:
        _run_protoc(Path(folder))
        return {path.name: _make_relative(path.read_text()) for path in sorted(Path(folder).iterdir())}


def stale_files(expected: dict[str, str], folder: Path) -> list[str]:
    """Returns the names of files in the folder that are missing, different, or no longer generated."""
    present = {path.name: path.read_text() for path in folder.glob("*_pb2*") if path.is_file()}
    names = expected.keys() | present.keys()
    return sorted(name for name in names if expected.get(name) != present.get(name))


def write(expected: dict[str, str], folder: Path) -> None:
    for name in stale_files(expected, folder):
        if name in expected:
            (folder / name).write_text(expected[name])
        else:
            (folder / name).unlink()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.generate_proto", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 if a file is stale")
    options = parser.parse_args(argv)
    expected = generate()
    stale = stale_files(expected, GENERATED)
    if not options.check:
        write(expected, GENERATED)
        print(f"proto: {len(stale)} of {len(expected)} files changed")
        return 0
    if stale:
        print(f"proto: stale: {', '.join(stale)}; run `make proto`", file=sys.stderr)
    return 1 if stale else 0


def _run_protoc(folder: Path) -> None:
    # Imported here: grpc_tools is a development dependency, and slow to load.
    from grpc_tools import protoc  # noqa: PLC0415 - see above

    arguments = [
        "protoc",
        f"--proto_path={SOURCES}",
        f"--proto_path={files('grpc_tools') / '_proto'}",
        f"--python_out={folder}",
        f"--pyi_out={folder}",
        f"--grpc_python_out={folder}",
        *(path.name for path in sorted(SOURCES.glob("*.proto"))),
    ]
    if protoc.main(arguments) != 0:
        sys.exit("proto: protoc failed; its error is above")


def _make_relative(text: str) -> str:
    return _PLAIN_IMPORT.sub(r"from . import \1", text)


if __name__ == "__main__":
    sys.exit(main())
