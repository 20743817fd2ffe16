"""The address of the cluster's database, and the options of its connections."""

from typing import Any

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.errors import InvalidArgumentError

#: psycopg waits at least this long for each host.
_CONNECT_S_MIN = 2


class DatabaseAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A URL, which may name several hosts, and the time limit of every call."""

    url: str
    limit_ms: int = 3_000
    #: Operators see it in `pg_stat_activity`; a takeover ends stalled connections whose name begins with `holdfast`.
    name: str = "holdfast-cluster"

    def conninfo(self, **more: object) -> str:
        """Returns the parameters of a connection to the server that accepts writes."""
        options: dict[str, Any] = {
            "application_name": self.name,
            "connect_timeout": max(_CONNECT_S_MIN, self.limit_ms // 1_000),
            # After a failover the promoted standby is found among the hosts.
            "target_session_attrs": "read-write",
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": self.limit_ms,
            **more,
        }
        try:
            return make_conninfo(self.url, **options)
        except psycopg.Error as error:
            message = f"the database must be a URL like postgresql://user@host/name: {error}".strip()
            raise InvalidArgumentError(message, reason="DATABASE_URL_INVALID") from None

    @property
    def hosts(self) -> str:
        """The hosts of the URL, for messages; a URL has secrets too."""
        return str(conninfo_to_dict(self.url).get("host") or "this machine")
