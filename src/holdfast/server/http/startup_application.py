"""HTTP while the server recovers: the probes, and 503 for everything else."""

from http import HTTPStatus

from holdfast.server.auth.permissions import OpenGuard
from holdfast.server.http.problems import RETRY_AFTER_S
from holdfast.server.http.request import JSON_TYPE, TEXT_TYPE, AdmittedRequest, Head, HttpResponse
from holdfast.server.http.request_handler import RequestHandler
from holdfast.server.http.request_shield import Shield
from holdfast.server.http.routing import PUBLIC, Route
from holdfast.server.startup import Startup


class StartingApplication(RequestHandler):
    """Answers requests until there is a backend."""

    def __init__(self, startup: Startup, shield: Shield) -> None:
        self._startup = startup
        probes = (
            ("/livez", self._live, "Whether the server is alive"),
            ("/readyz", self._ready, "Whether the server accepts jobs"),
        )
        routes = [
            Route(
                method="GET",
                path=path,
                scope=PUBLIC,
                handler=handler,
                summary=summary,
                tag="system",
                answers={200: None},
                content=TEXT_TYPE.decode(),
            )
            for path, handler, summary in probes
        ]
        super().__init__(routes, "the server is starting", OpenGuard(), shield)

    def _admitted(self, head: Head) -> AdmittedRequest | HttpResponse:
        if self.router.find(head.path) is None:
            raise self._startup.error()
        return super()._admitted(head)

    async def _live(self, request: AdmittedRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, b"alive\n", TEXT_TYPE)

    async def _ready(self, request: AdmittedRequest) -> HttpResponse:
        later = [(b"retry-after", str(RETRY_AFTER_S).encode())]
        return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, self._startup.document, JSON_TYPE, later)
