"""Access settings of a client: its token, TLS, and certificates, parsed from the server's URL.

`holdfast://TOKEN@host:port` connects without TLS, `holdfasts://TOKEN@host:port` with TLS. `?ca=` names the certificate
authority that must have signed the server's certificate (default: those that the system trusts). `?cert=` and `?key=`
name the client's own certificate and key.
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
    """The access settings for every connection to one server, or to each of several nodes."""

    token: str = ""
    is_secure: bool = False
    #: In PEM format, as are `cert` and `key`.
    ca: bytes = b""
    cert: bytes = b""
    key: bytes = b""

    def __repr__(self) -> str:
        return f"<Access {'with' if self.token else 'without'} a token{', over TLS' if self.is_secure else ''}>"


#: Access without a token and without TLS.
NO_CREDENTIALS = Access()


def access_of(url: str, *, token: str = "", fallback: str = "") -> Access:
    """Parses a URL; `token` takes precedence over the token in the URL, which takes precedence over `fallback`.

    Raises `InvalidArgumentError` with the invalid part; the message never contains a token.
    """
    found = _URL.fullmatch(url)
    words = found.groupdict(default="") if found is not None else {"token": "", "query": ""}
    shown = token or unquote(words["token"]) or fallback
    if not _PRINTABLE.fullmatch(shown):
        raise InvalidArgumentError(
            "the token has invalid characters; use it as `holdfast token create` printed it", reason="TOKEN_INVALID"
        )
    is_secure = url.startswith(_SECURE)
    files = _files(words["query"])
    if files and not is_secure:
        raise InvalidArgumentError(f"?{'&'.join(files)}= requires TLS; use {_SECURE}", reason="URL_INVALID")
    if ("cert" in files) != ("key" in files):
        raise InvalidArgumentError("?cert= and ?key= must be given together, got one of them", reason="URL_INVALID")
    contents = {name: _content(name, path) for name, path in files.items()}
    return Access(token=shown, is_secure=is_secure, **contents)


def _files(query: str) -> Mapping[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names) or not set(names) <= set(_FILES) or (query and not pairs):
        message = (
            f"a URL may have ?ca=FILE, &cert=FILE and &key=FILE, each at most once, got {', '.join(names) or query!r}"
        )
        raise InvalidArgumentError(message, reason="URL_INVALID")
    return dict(pairs)


def _content(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"?{name}= must be a readable file, got {path!r}: {error.strerror or error}"
        raise InvalidArgumentError(message, reason="URL_INVALID") from error
