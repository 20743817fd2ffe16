"""The dashboard's files, read from the package and served at `/` and `/assets/...`."""

from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from zlib import crc32

from holdfast.server.http.request import AdmittedRequest, HttpResponse
from holdfast.server.http.routing import PUBLIC, Handler, Route

_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".mjs": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".json": b"application/json",
    ".svg": b"image/svg+xml",
    ".png": b"image/png",
    ".ico": b"image/x-icon",
    ".webmanifest": b"application/manifest+json",
    ".woff2": b"font/woff2",
}
_PAGE = "index.html"
#: The browser may store the file, and must revalidate it at each use.
_CACHE = b"no-cache"


def routes() -> list[Route]:
    """Returns a route for each file of the dashboard."""
    folder = resources.files("holdfast.server").joinpath("dashboard")
    if not folder.is_dir():
        return []
    return [_route("/" if name == _PAGE else f"/assets/{name}", file) for name, file in _files(folder)]


def _files(folder: Traversable, under: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        name = f"{under}{entry.name}"
        if entry.is_dir():
            yield from _files(entry, f"{name}/")
        elif _suffix(name) in _TYPES:
            yield name.removeprefix("assets/"), entry


def _suffix(name: str) -> str:
    return name[name.rfind(".") :]


def _route(path: str, file: Traversable) -> Route:
    return Route(
        method="GET",
        path=path,
        scope=PUBLIC,
        handler=_handler(file.read_bytes(), _TYPES[_suffix(file.name)]),
        summary=f"Dashboard file {file.name}",
        is_short_form=True,
    )


def _handler(data: bytes, kind: bytes) -> Handler:
    """Serves the file as it was when the server started; replies 304 if the browser has this version."""
    tag = b'"%08x"' % crc32(data)
    headers = [(b"etag", tag)]

    async def handler(request: AdmittedRequest) -> HttpResponse:
        if request.head.header(b"if-none-match") == tag.decode():
            return HttpResponse(304, b"", kind, headers, _CACHE)
        return HttpResponse(200, data, kind, headers, _CACHE)

    return handler
