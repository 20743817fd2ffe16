"""`holdfast token`: who may do what on the server of a directory; a running server notices within a second."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.moments import span_ms
from holdfast.cli.text import Json, as_time, print_json, print_table, printable, say
from holdfast.errors import InvalidArgumentError
from holdfast.settings import MEMORY, TOKENS_NAME, Settings
from holdfast.settings_sources import load

if TYPE_CHECKING:
    from holdfast.server.auth.permissions import Scope
    from holdfast.server.auth.tokens import Token

app = typer.Typer(
    help="Make and revoke the tokens of a server. Once its directory has some, it demands them over gRPC and HTTP.",
    short_help="Make and revoke the tokens of a server.",
    no_args_is_help=True,
)

Data = Annotated[
    str | None,
    typer.Option("--data", metavar="DIRECTORY", help="The server's directory (default: as for `holdfast server`)."),
]


@app.command()
def create(
    scopes: Annotated[
        str,
        typer.Option(
            "--scopes", metavar="A,B", help="What it may do: submit, read, work (a worker), admin (everything)."
        ),
    ],
    name: Annotated[str, typer.Option("--name", help="What it is called in lists (default: a random name).")] = "",
    expires: Annotated[str, typer.Option("--expires", metavar="SPAN", help="When it ends, such as 90d or 12h.")] = "",
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Make a token. It is shown now and never again; only its hash is kept."""
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
    say(f"holdfast: {name} may {', '.join(scope.value for scope in wanted)}; keep the token, it is not shown again")
    print(made)


@app.command("list")
def list_tokens(data: Data = None, as_json: Json = False) -> None:
    """List the tokens, without the tokens themselves."""
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
    nothing = "no tokens: the server is open to this machine" if found is None else "no tokens left: nobody is let in"
    print_table(("NAME", "SCOPES", "CREATED", "EXPIRES", ""), rows, nothing)


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the token is called.")],
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Make a token worthless, for calls and for whoever is connected with it."""
    from holdfast.server.auth import tokens

    gone = tokens.revoke(_file(data), name)
    if as_json:
        print_json({"name": gone.name, "revoked": True})
    else:
        print(printable(f"{gone.name} is revoked"))


def _file(data: str | None) -> Path:
    """Where the tokens are, as the server would look for them."""
    settings = load(Settings, flags={"data": data}, environment=os.environ, folder=Path.cwd()).settings
    if not settings.tokens_file:
        raise InvalidArgumentError(
            f"expected --data to be a directory, got {MEMORY}; {TOKENS_NAME} is kept in it", reason="DATA_INVALID"
        )
    return Path(settings.tokens_file)


def _scopes(text: str) -> "list[Scope]":
    from holdfast.server.auth.permissions import Scope

    known = {scope.value: scope for scope in Scope}
    words = [word.strip() for word in text.split(",")]
    if not set(words) <= set(known):
        raise InvalidArgumentError(
            f"expected --scopes to be some of {', '.join(known)}, with commas, got {text!r}", reason="SCOPE_UNKNOWN"
        )
    return [scope for word, scope in known.items() if word in words]


def _checked_span(text: str) -> int:
    span = span_ms(text, "--expires")
    if not 0 < span <= _SPAN_MS_MAX:
        message = f"expected --expires to be more than nothing and at most ten years, got {text!r}"
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
