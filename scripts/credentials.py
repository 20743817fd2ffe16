"""Makes the credentials of a compose file, once: a one-shot container runs this before the services start.

`services FOLDER` writes a token for each role that calls others, and the hashes by which the other services recognise
them: FOLDER/gateway/token, FOLDER/coordinator/token, FOLDER/worker/token and FOLDER/callers/hashes. Each is in a folder
of its own, so that a container mounts only the files it needs. `pipeline FOLDER` does the same for the roles of the
pipeline: gateway, watcher, exchange, worker and operator. `worker --data DIRECTORY FOLDER` makes a token of the server
in that directory with the scope `work`, and writes it to FOLDER/worker/token.

Existing credentials are kept, so the program may run at every start. Only their owner may read the files.
"""

import argparse
import hashlib
import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

#: The roles that call others, by kind. Three microservices make no calls; the operator is a person or a monitor.
CALLERS = {
    "services": ("gateway", "coordinator", "worker"),
    "pipeline": ("gateway", "watcher", "exchange", "worker", "operator"),
}
#: The name of the workers' token, as `holdfast token list` shows it.
WORKERS = "workers"
_TOKEN_BYTES = 32


def token_file(folder: Path, role: str) -> Path:
    """Returns the path of a role's own token."""
    return folder / role / "token"


def hashes_file(folder: Path) -> Path:
    """Returns the path of the hashes of all callers' tokens."""
    return folder / "callers" / "hashes"


def make_for_callers(folder: Path, kind: str, *, is_replacing: bool) -> bool:
    """Makes all credentials, or none if all files exist; returns whether it made them."""
    paths = [*(token_file(folder, role) for role in CALLERS[kind]), hashes_file(folder)]
    if not is_replacing and all(path.exists() for path in paths):
        return False
    # An interrupted run leaves no hashes, so that the next run makes all credentials again.
    hashes_file(folder).unlink(missing_ok=True)
    tokens = {role: secrets.token_urlsafe(_TOKEN_BYTES) for role in CALLERS[kind]}
    for role, token in tokens.items():
        _write(token_file(folder, role), token)
    _write(hashes_file(folder), _hashes(tokens))
    return True


def make_for_workers(folder: Path, data: Path, *, is_replacing: bool) -> bool:
    """Makes the workers' token, and revokes an earlier one whose file is lost; returns whether it made one."""
    from holdfast.server.auth import tokens  # noqa: PLC0415 - `services` does not need it
    from holdfast.server.auth.permissions import Scope  # noqa: PLC0415 - as above

    path, known = token_file(folder, "worker"), data / tokens.FILE_NAME
    if not is_replacing and path.exists():
        return False
    if any(token.name == WORKERS for token in tokens.read(known) or ()):
        tokens.revoke(known, WORKERS)
    _write(path, tokens.create(known, WORKERS, [Scope.WORK], now_ms=time.time_ns() // 1_000_000))
    return True


def _hashes(tokens: Mapping[str, str]) -> str:
    return ",".join(f"{role}:{hashlib.sha256(token.encode()).hexdigest()}" for role, token in tokens.items())


def _write(path: Path, text: str) -> None:
    """Replaces the file atomically, so that a reader never sees a part of it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("folder", type=Path, metavar="FOLDER", help="where to write the files")
    shared.add_argument(
        "--replace", action="store_true", help="make new credentials; restart the containers afterwards"
    )
    parser = argparse.ArgumentParser(
        prog="python -m scripts.credentials", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    kinds.add_parser("services", parents=[shared], help="for the services of compose.microservices.yaml")
    kinds.add_parser("pipeline", parents=[shared], help="for the roles of the pipeline, each started separately")
    worker = kinds.add_parser("worker", parents=[shared], help="for the workers of compose.yaml")
    worker.add_argument("--data", type=Path, required=True, metavar="DIRECTORY", help="the directory of the server")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    try:
        if options.kind in CALLERS:
            is_made = make_for_callers(options.folder, options.kind, is_replacing=options.replace)
        else:
            is_made = make_for_workers(options.folder, options.data, is_replacing=options.replace)
    except OSError as error:
        print(f"credentials: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"credentials: {'made' if is_made else 'kept the existing ones'} in {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
