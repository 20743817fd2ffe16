"""`zk://host:2181,host:2181/path?lease_ms=10000`: which ensemble, where in it, how long a worker may be silent."""

import re
from urllib.parse import parse_qsl, urlsplit

import msgspec

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.settings import ENSEMBLE, SESSION_MS, masked

ROOT = "/holdfast"
PORT = 2_181

_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s/:,@?#\[\]]+)(?::(?P<port>[0-9]{1,5}))?")
_MILLISECONDS = re.compile(r"[0-9]{1,18}")
_PORT_MAX = 65_535
_SERVERS_MAX = 64
_RESERVED = "zookeeper"
_LEASE = "lease_ms"
_FORM = "zk://host:port,host:port/path"


class Ensemble(msgspec.Struct, frozen=True, kw_only=True):
    """Where jobs are posted; `lease_ms` is how long the session of a worker lasts without a word."""

    hosts: str
    root: str = ROOT
    lease_ms: int = SESSION_MS

    @property
    def place(self) -> str:
        """As people and ready lines call it."""
        return f"{self.hosts}{self.root}"

    @property
    def url(self) -> str:
        """What an app or a worker is told."""
        lease = "" if self.lease_ms == SESSION_MS else f"?{_LEASE}={self.lease_ms}"
        return f"{ENSEMBLE}{self.place}{lease}"


def ensemble_of(text: str) -> Ensemble:
    """What a URL or a setting names, the scheme being optional; `InvalidArgumentError` says what is wrong with it."""
    try:
        parts = urlsplit(f"{ENSEMBLE}{text.removeprefix(ENSEMBLE)}")
    except ValueError as error:
        raise _wrong(text, f"it cannot be read ({error})") from None
    if parts.fragment or "@" in parts.netloc:
        raise _wrong(text, "it has no place for a name, a password or a fragment")
    hosts = [_host(text, part.strip()) for part in parts.netloc.split(",")]
    if len(set(hosts)) < len(hosts) or len(hosts) > _SERVERS_MAX:
        raise _wrong(text, f"each server is named once, and there are at most {_SERVERS_MAX}")
    root = parts.path.rstrip("/") or ROOT
    if any(part in {"", ".", ".."} for part in root[1:].split("/")) or not re.fullmatch(r"[\w./-]+", root):
        raise _wrong(text, "a path is made of letters, digits, dots, underscores and hyphens")
    if root.split("/")[1] == _RESERVED:
        raise _wrong(text, f"what is below /{_RESERVED} is ZooKeeper's own")
    return Ensemble(hosts=",".join(hosts), root=root, lease_ms=_lease_ms(text, parts.query))


def _host(text: str, part: str) -> str:
    found = _HOST.fullmatch(part)
    if found is None or not 0 < int(found["port"] or PORT) <= _PORT_MAX:
        raise _wrong(text, f"{part!r} is no server")
    return part if found["port"] else f"{part}:{PORT}"


def _lease_ms(text: str, query: str) -> int:
    told = dict(parse_qsl(query, keep_blank_values=True))
    given = told.pop(_LEASE, str(SESSION_MS))
    if told or not _MILLISECONDS.fullmatch(given) or not limits.LEASE_MS_MIN <= int(given) <= limits.LEASE_MS_MAX:
        raise _wrong(text, f"?{_LEASE}= is a number from {limits.LEASE_MS_MIN} to {limits.LEASE_MS_MAX}, nothing else")
    return int(given)


def _wrong(text: str, why: str) -> InvalidArgumentError:
    shown = f"{ENSEMBLE}{text.removeprefix(ENSEMBLE)}"  # with the scheme, after which a password is looked for
    return InvalidArgumentError(f"expected {_FORM}, got {masked(shown)!r}: {why}", reason="URL_INVALID")
