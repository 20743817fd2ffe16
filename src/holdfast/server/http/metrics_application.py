"""The metrics port: `/metrics`, `/livez` and `/readyz` without tokens, and nothing else."""

import msgspec

from holdfast.server.auth.permissions import OpenGuard
from holdfast.server.backend import Backend
from holdfast.server.http import system
from holdfast.server.http.request import AdmittedRequest, Head, HttpResponse
from holdfast.server.http.request_handler import RequestHandler
from holdfast.server.http.request_shield import Shield
from holdfast.server.http.routing import PUBLIC

_PATHS = frozenset({"/metrics", "/livez", "/readyz"})


class MetricsApplication(RequestHandler):
    """Serves the probes and the metrics to every caller that uses a host name of this server."""

    def __init__(self, backend: Backend, shield: Shield, probes: system.Probes) -> None:
        rows = system.routes(system.SystemRoutes(backend, probes))
        routes = [msgspec.structs.replace(row, scope=PUBLIC) for row in rows if row.path in _PATHS]
        super().__init__(routes, "this port has /metrics, /livez and /readyz", OpenGuard(), shield)

    def admit(self, head: Head) -> AdmittedRequest | HttpResponse:
        """Ignores the query, because scrapers may add parameters."""
        return super().admit(msgspec.structs.replace(head, query=b""))
