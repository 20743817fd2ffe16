"""The yardstick of HTTP: a bare Litestar app on uvicorn that returns the JSON of the request."""

import socket
from typing import Any

import uvicorn
from litestar import Litestar, post


@post("/echo", status_code=202, sync_to_thread=False)
def echo(data: dict[str, Any]) -> dict[str, Any]:
    """Return the body of the request."""
    return data


def serve() -> None:
    """Print the port and serve until killed."""
    bound = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        Litestar([echo], openapi_config=None),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
    )
    print(bound.getsockname()[1], flush=True)
    uvicorn.Server(config).run([bound])


if __name__ == "__main__":
    serve()
