"""The yardstick: a bare grpc.aio server that returns what it is sent. Run as a process of its own."""

import asyncio
import sys

import grpc
import uvloop

METHOD = "/holdfast.lab.Echo/Echo"


async def _echo(request: bytes, _context: object) -> bytes:
    return request


async def serve() -> None:
    """Prints its port and serves until killed."""
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("holdfast.lab.Echo", {"Echo": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(uvloop.run(serve()))
