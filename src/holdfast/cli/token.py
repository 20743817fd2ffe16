"""`holdfast token`: manage the access tokens of a server; a running server applies changes within a second."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.text import Json, as_time, print_json, print_table, printable, say
from holdfast.cli.times import span_ms
from holdfast.errors import InvalidArgumentError
from holdfast.settings import MEMORY, TOKENS_NAME, Settings
from holdfast.settings_sources import load

if TYPE_CHECKING:
    from holdfast.server.auth.permissions import Scope
    from holdfast.server.auth.tokens import Token

app = typer.Typer(
    help="Create and revoke access tokens. Once a token exists, the server requires one over gRPC and HTTP.",
    short_help="Create and revoke access tokens.",
    no_args_is_help=True,
)

Data = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="DIRECTORY", help="Data directory of the server (default: as for `holdfast server`)."
    ),
]


@app.command()
def create(
    scopes: Annotated[
        str,
        typer.Option(
            "--scopes",
            metavar="A,B",
            help="Comma-separated scopes: submit, read, work (for workers), admin (everything).",
        ),
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of the token (default: a random name).")
    ] = "",
    expires: Annotated[
        str, typer.Option("--expires", metavar="SPAN", help="Lifetime, such as 90d or 12h (default: no limit).")
    ] = "",
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Create a token and print it. It is not shown again; only its hash is stored."""
    import secrets

    from holdfast.server.auth import tokens

    now_ms = time.time_ns() // 1_000_000
    wanted = _scopes(scopes)
    expires_at_ms = now_ms + _checked_span(expires) if expires else 0
    name = name or f"token-{secrets.token_hex(4)}"
    made = tokens.create(_file(data), name, wanted, now_ms=now_ms, expires_at_ms=expires_at_ms)
    if as_json:
        fields = {"name": name, "scopes": [scope.value for scope in wanted], "expires_at_ms": expires_at_ms}
        print_json({"token": made, **fields})
        return
    say(f"holdfast: {name} may {', '.join(scope.value for scope in wanted)}; save the token, it is not shown again")
    print(made)


@app.command("list")
def list_tokens(data: Data = None, as_json: Json = False) -> None:
    """List the names and scopes of the tokens."""
    from holdfast.server.auth import tokens

    found = tokens.read(_file(data))
    if as_json:
        print_json([_fields(token) for token in found or ()])
        return
    now_ms = time.time_ns() // 1_000_000
    rows = [
        (
            token.name,
            ",".join(scope.value for scope in token.scopes),
            as_time(token.created_at_ms),
            "never" if not token.expires_at_ms else as_time(token.expires_at_ms),
            "expired" if token.is_over(now_ms) else "",
        )
        for token in found or ()
    ]
    nothing = "no tokens: callers need none" if found is None else "no tokens left: all callers are refused"
    print_table(("NAME", "SCOPES", "CREATED", "EXPIRES", ""), rows, nothing)


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")],
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Revoke a token, also for connections that already use it."""
    from holdfast.server.auth import tokens

    gone = tokens.revoke(_file(data), name)
    if as_json:
        print_json({"name": gone.name, "revoked": True})
    else:
        print(printable(f"{gone.name} is revoked"))


def _file(data: str | None) -> Path:
    """Returns the path of the token file that the server uses."""
    settings = load(Settings, flags={"data": data}, environment=os.environ, folder=Path.cwd()).settings
    if not settings.tokens_file:
        raise InvalidArgumentError(
            f"--data must be a directory, which contains {TOKENS_NAME}, got {MEMORY}", reason="DATA_INVALID"
        )
    return Path(settings.tokens_file)


def _scopes(text: str) -> "list[Scope]":
    from holdfast.server.auth.permissions import Scope

    known = {scope.value: scope for scope in Scope}
    words = [word.strip() for word in text.split(",")]
    if not set(words) <= set(known):
        raise InvalidArgumentError(
            f"--scopes must be a comma-separated list of {', '.join(known)}, got {text!r}", reason="SCOPE_UNKNOWN"
        )
    return [scope for word, scope in known.items() if word in words]


def _checked_span(text: str) -> int:
    span = span_ms(text, "--expires")
    if not 0 < span <= _SPAN_MS_MAX:
        message = f"--expires must be more than 0 and at most ten years, got {text!r}"
        raise InvalidArgumentError(message, reason="SPAN_INVALID")
    return span


_SPAN_MS_MAX = 3_660 * 86_400_000


def _fields(token: "Token") -> dict[str, object]:
    return {
        "name": token.name,
        "scopes": [scope.value for scope in token.scopes],
        "created_at_ms": token.created_at_ms,
        "expires_at_ms": token.expires_at_ms,
    }
