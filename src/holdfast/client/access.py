"""How a client reaches a server: what it shows, and what it wants to see.

`holdfast://TOKEN@host:port` speaks in the clear, `holdfasts://TOKEN@host:port` over TLS. `?ca=` names the authority
that must have signed the server's certificate (else one that the system trusts), `?cert=` and `?key=` the client's own.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote

import msgspec

from holdfast.errors import InvalidArgumentError

_SECURE = "holdfasts://"
_URL = re.compile(r"holdfasts?://(?:(?P<token>[^/@\s]*)@)?[^?]*(?:\?(?P<query>.*))?")
_FILES = ("ca", "cert", "key")
_PRINTABLE = re.compile(r"[!-~]*")


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What belongs to every connection with one server, or with all nodes of one."""

    token: str = ""
    is_secure: bool = False
    #: As PEM.
    ca: bytes = b""
    cert: bytes = b""
    key: bytes = b""

    def __repr__(self) -> str:
        return f"<Access {'with' if self.token else 'without'} a token{', over TLS' if self.is_secure else ''}>"

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call carries."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


ANYBODY = Access()


def access_of(url: str, *, token: str = "", fallback: str = "") -> Access:
    """What a URL says; a `token` counts more than the one in it, and that more than a `fallback`.

    `InvalidArgumentError` names what cannot be, and never a token.
    """
    found = _URL.fullmatch(url)
    words = found.groupdict(default="") if found is not None else {"token": "", "query": ""}
    shown = token or unquote(words["token"]) or fallback
    if not _PRINTABLE.fullmatch(shown):
        raise InvalidArgumentError("expected a token to be as it was shown when it was made", reason="TOKEN_INVALID")
    is_secure = url.startswith(_SECURE)
    files = _files(words["query"])
    if files and not is_secure:
        raise InvalidArgumentError(f"expected ?{'&'.join(files)}= with {_SECURE}, for TLS", reason="URL_INVALID")
    if ("cert" in files) != ("key" in files):
        raise InvalidArgumentError("expected ?cert= and ?key= together, got one of them", reason="URL_INVALID")
    contents = {name: _content(name, path) for name, path in files.items()}
    return Access(token=shown, is_secure=is_secure, **contents)


def _files(query: str) -> Mapping[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names) or not set(names) <= set(_FILES) or (query and not pairs):
        message = (
            f"expected ?ca=FILE, &cert=FILE and &key=FILE at the end of the URL, got {', '.join(names) or query!r}"
        )
        raise InvalidArgumentError(message, reason="URL_INVALID")
    return dict(pairs)


def _content(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"expected ?{name}= to be a file that can be read, got {path!r}: {error.strerror or error}"
        raise InvalidArgumentError(message, reason="URL_INVALID") from error
