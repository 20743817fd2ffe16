"""Makes a token for each role that calls others, and the hashes by which they are known: a file that compose reads.

Who may read the file may call every service, so only its owner may. A file that is there is left alone.
"""

import argparse
import hashlib
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

#: The roles that call services; the other three only answer.
CALLERS = ("gateway", "coordinator", "worker")
_TOKEN_BYTES = 32


def lines() -> list[str]:
    """New tokens, as the variables of `deploy/compose.microservices.yaml`."""
    tokens = {role: secrets.token_urlsafe(_TOKEN_BYTES) for role in CALLERS}
    hashes = ",".join(f"{role}:{hashlib.sha256(token.encode()).hexdigest()}" for role, token in tokens.items())
    return [*(f"{role.upper()}_TOKEN={token}" for role, token in tokens.items()), f"SERVICE_TOKEN_HASHES={hashes}"]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.service_tokens", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="where to write them, such as deploy/.env")
    path: Path = parser.parse_args(argv).file
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        print(f"service_tokens: {path}: {error.strerror}", file=sys.stderr)
        return 1
    with os.fdopen(descriptor, "w") as file:
        file.write("\n".join(lines()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
