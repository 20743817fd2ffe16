"""`zk://host:2181,host:2181/path?lease_ms=10000&auth_file=FILE`: the URL of an ensemble and of a path in it.

`lease_ms` is the session timeout of a worker. The file has the credentials, `user:password`, that ZooKeeper requires to
read and change the nodes. The URL has only the path of the file, because URLs appear in logs and on command lines.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from holdfast import limits
from holdfast.errors import FailedPreconditionError, InvalidArgumentError
from holdfast.process.private_paths import problem_of_file
from holdfast.settings import ENSEMBLE, masked
from holdfast.topologies.table import topology_named

if TYPE_CHECKING:
    from holdfast.ports import WorkApi
    from holdfast.topologies.zookeeper.backend.ensemble_client import EnsembleClient
    from holdfast.topologies.zookeeper.link import EnsembleLink

ROOT = "/holdfast"
PORT = 2_181
#: The default session timeout of a worker.
SESSION_MS: int = topology_named("zookeeper").defaults["lease_ms"]

_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s/:,@?#\[\]]+)(?::(?P<port>[0-9]{1,5}))?")
_MILLISECONDS = re.compile(r"[0-9]{1,18}")
_PORT_MAX = 65_535
_SERVERS_MAX = 64
_RESERVED = "zookeeper"
_LEASE, _AUTH_FILE = "lease_ms", "auth_file"
_CREDENTIALS = re.compile(r"[!-9;-~]{1,128}:[!-~]{8,256}")
_FORM = "zk://host:port,host:port/path"


class Ensemble(msgspec.Struct, frozen=True, kw_only=True):
    """An ensemble and a path in it; `lease_ms` is the session timeout of a worker."""

    hosts: str
    root: str = ROOT
    lease_ms: int = SESSION_MS
    #: The file with the credentials; empty: none.
    auth_file: str = ""

    @property
    def place(self) -> str:
        """The URL without its scheme and lease, for ready lines and messages."""
        return self._shown({})

    @property
    def url(self) -> str:
        """The URL for an app or a worker."""
        lease = {} if self.lease_ms == SESSION_MS else {_LEASE: str(self.lease_ms)}
        return f"{ENSEMBLE}{self._shown(lease)}"

    async def client(self) -> "EnsembleClient":
        """Connects a client; `UnavailableError` if no server answers."""
        from holdfast.topologies.zookeeper.client_api import open_client  # noqa: PLC0415 - it imports this module

        return await open_client(self)

    def work(self) -> "WorkApi":
        """Returns the `WorkApi` whose sessions bid for jobs."""
        from holdfast.topologies.zookeeper.client_api import bid_work  # noqa: PLC0415 - it imports this module

        return bid_work(self)

    def _shown(self, query: dict[str, str]) -> str:
        told = {**query, **({_AUTH_FILE: quote(self.auth_file)} if self.auth_file else {})}
        words = "&".join(f"{name}={value}" for name, value in told.items())
        return f"{self.hosts}{self.root}{'?' if words else ''}{words}"

    def credentials(self) -> str:
        """Reads `user:password` from the file; empty without a file, `FailedPreconditionError` if it is unusable."""
        if not self.auth_file:
            return ""
        try:
            with Path(self.auth_file).open(encoding="ascii") as file:
                state, found = os.fstat(file.fileno()), file.read().strip()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            message = f"{_AUTH_FILE} must name a file with the credentials, got {self.auth_file!r}: {why}"
            raise FailedPreconditionError(message, reason="CREDENTIALS_UNUSABLE") from None
        if problem := problem_of_file(Path(self.auth_file), state):
            message = f"the credentials in {self.auth_file!r} cannot be used: {problem}"
            raise FailedPreconditionError(message, reason="CREDENTIALS_UNUSABLE")
        if not _CREDENTIALS.fullmatch(found):
            message = (
                f"expected one line user:password in {self.auth_file!r}, the password with at least 8 visible ASCII"
                f" characters, got {len(found)} characters that are not shown"
            )
            raise FailedPreconditionError(message, reason="CREDENTIALS_UNUSABLE")
        return found


def ensemble_of(text: str) -> Ensemble:
    """Parses a URL or a setting, with or without the scheme; `InvalidArgumentError` says what is wrong."""
    try:
        parts = urlsplit(f"{ENSEMBLE}{text.removeprefix(ENSEMBLE)}")
    except ValueError as error:
        raise _wrong(text, f"it cannot be read ({error})") from None
    if parts.fragment or "@" in parts.netloc:
        raise _wrong(text, "a user name, a password or a fragment is not allowed")
    hosts = [_host(text, part.strip()) for part in parts.netloc.split(",")]
    if len(set(hosts)) < len(hosts) or len(hosts) > _SERVERS_MAX:
        raise _wrong(text, f"each server must be named once, and there may be at most {_SERVERS_MAX}")
    root = parts.path.rstrip("/") or ROOT
    if any(part in {"", ".", ".."} for part in root[1:].split("/")) or not re.fullmatch(r"[\w./-]+", root):
        raise _wrong(text, "the path must consist of letters, digits, dots, underscores and hyphens")
    if root.split("/")[1] == _RESERVED:
        raise _wrong(text, f"paths below /{_RESERVED} are reserved for ZooKeeper")
    lease_ms, auth_file = _told(text, parts.query)
    return Ensemble(hosts=",".join(hosts), root=root, lease_ms=lease_ms, auth_file=auth_file)


def opener(url: str, settings: Mapping[str, object], clock: object, token: str) -> "Callable[[], EnsembleLink]":
    """Returns a function that opens the link of an app. Raises now for settings, a clock, a token or a wrong URL."""
    if settings or clock or token:
        message = "settings, clock and token are not allowed for zk://; remove them"
        raise InvalidArgumentError(message, reason="SETTINGS_INVALID")
    ensemble = ensemble_of(url)

    def link() -> "EnsembleLink":
        from holdfast.topologies.zookeeper.link import EnsembleLink  # noqa: PLC0415 - it imports this module

        return EnsembleLink(ensemble)

    return link


def _host(text: str, part: str) -> str:
    found = _HOST.fullmatch(part)
    if found is None or not 0 < int(found["port"] or PORT) <= _PORT_MAX:
        raise _wrong(text, f"{part!r} is not a valid host:port")
    return part if found["port"] else f"{part}:{PORT}"


def _told(text: str, query: str) -> tuple[int, str]:
    """Returns the lease length, and the file with the credentials."""
    told = dict(parse_qsl(query, keep_blank_values=True))
    auth_file = told.pop(_AUTH_FILE, "")
    given = told.pop(_LEASE, str(SESSION_MS))
    if told or not _MILLISECONDS.fullmatch(given) or not limits.LEASE_MS_MIN <= int(given) <= limits.LEASE_MS_MAX:
        raise _wrong(
            text,
            f"?{_LEASE}= must be a number from {limits.LEASE_MS_MIN} to {limits.LEASE_MS_MAX}, {_AUTH_FILE}= a file"
            " name, and no other parameter is allowed",
        )
    return int(given), auth_file


def _wrong(text: str, why: str) -> InvalidArgumentError:
    shown = f"{ENSEMBLE}{text.removeprefix(ENSEMBLE)}"  # `masked` finds a password only after a scheme
    return InvalidArgumentError(f"expected {_FORM}, got {masked(shown)!r}: {why}", reason="URL_INVALID")
