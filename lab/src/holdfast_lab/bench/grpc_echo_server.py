"""The yardstick of gRPC: a bare grpc.aio server that returns the request."""

import asyncio
import sys

import grpc
import uvloop

SERVICE = "holdfast.lab.Echo"
METHOD = f"/{SERVICE}/Echo"


async def _echo(request: bytes, _context: object) -> bytes:
    return request


async def serve() -> None:
    """Print the port and serve until killed."""
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Echo": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(uvloop.run(serve()))
