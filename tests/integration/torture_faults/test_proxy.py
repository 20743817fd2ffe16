"""The proxies of a torture run: each of their faults, with real sockets."""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator

import pytest

from holdfast_lab.torture.faults.link_condition import reset
from holdfast_lab.torture.faults.proxy import TcpProxy
from tests.e2e.fleet import stable_port
from tests.integration.torture_faults.proxy_peers import Server, connected, proxied, serving, until


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """The server behind the proxy."""
    async with serving() as made:
        yield made


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[TcpProxy]:
    """The proxy to the server."""
    async with proxied(server.port) as made:
        yield made


async def test_good_road_carries_both_ways_and_closes_one_way_at_a_time(server: Server, proxy: TcpProxy) -> None:
    """The proxy forwards both directions, and a client that has half-closed its side still receives."""
    async with connected(proxy) as client:
        client.say(b"question")
        client.writer.write_eof()
        heard = await server.heard(b"question")
        await until(lambda: heard.end == "closed")
        heard.writer.write(b"answer")
        assert await client.hear(6) == b"answer"
        heard.writer.close()
        assert await client.end() == "closed"
    await until(lambda: proxy.connections == 0)
    assert (proxy.traffic.connections, proxy.traffic.bytes_to_server, proxy.traffic.bytes_to_client) == (1, 8, 6)


async def test_large_amounts_arrive_whole(server: Server, proxy: TcpProxy) -> None:
    """Large amounts of data arrive whole and in order, also if one side is slow."""
    data = random.Random(7).randbytes(12 << 20)
    async with connected(proxy) as client:
        client.say(data)
        client.writer.write_eof()
        await until(lambda: server.connections and server.connections[0].end == "closed")
    assert hashlib.sha256(server.connections[0].said).digest() == hashlib.sha256(data).digest()


async def test_connection_through_a_proxy_without_a_server_is_reset() -> None:
    """A connection through a proxy without a server is reset."""
    async with proxied(stable_port()) as proxy, connected(proxy) as client:
        assert await client.end() == "reset"
    assert proxy.traffic.refused == 1


async def test_connection_that_comes_while_the_road_is_closed_is_reset(server: Server) -> None:
    """A connection that is accepted while the proxy closes is reset."""
    proxy = await TcpProxy.open("127.0.0.1", server.port)
    accept = proxy._accept

    def accept_and_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accept(reader, writer)
        for task in proxy._tasks:
            task.cancel()

    proxy._accept = accept_and_end  # type: ignore[method-assign]
    proxy._server.close()  # type: ignore[union-attr]
    proxy._server = await asyncio.start_server(proxy._accept, "127.0.0.1", proxy.port)
    async with connected(proxy) as client:
        assert await client.end() == "reset"
    await proxy.close()


async def test_connection_that_ends_while_the_road_is_closed_leaves_nothing_open(server: Server) -> None:
    """A connection that ends while the proxy closes leaves neither side open."""
    proxy = await TcpProxy.open("127.0.0.1", server.port)
    async with connected(proxy) as client:
        client.say(b"word")
        heard = await server.heard(b"word")
        (road,) = proxy._connections
        road._is_over.set()
        await asyncio.sleep(0)  # the connection now waits for its tasks to end
        await proxy.close()
        assert road._out.sink.is_closing()
        assert road._back.sink.is_closing()
        await until(lambda: heard.end)
        await client.end()


async def test_delayed_bytes_come_later_and_in_order(server: Server, proxy: TcpProxy) -> None:
    """The proxy delays each direction, and bytes that are sent after the delay ends do not overtake earlier ones."""
    loop = asyncio.get_running_loop()
    async with connected(proxy) as client:
        proxy.delay(0.1)
        begun = loop.time()
        client.say(b"slow")
        heard = await server.heard(b"slow")
        there = loop.time()
        heard.writer.write(b"back")
        assert await client.hear(4) == b"back"
        assert (there - begun >= 0.1, loop.time() - there >= 0.1) == (True, True)
        client.say(b" one")
        await until(lambda: proxy.traffic.bytes_said == 12)
        proxy.delay(0.0)
        client.say(b" two")
        await server.heard(b"slow one two")


async def test_cut_after_send_delivers_and_loses_the_answer(server: Server, proxy: TcpProxy) -> None:
    """After the fault `cut after send` the server has received everything, and the client is reset without a reply."""
    async with connected(proxy) as client:
        client.say(b"commit")
        heard = await server.heard(b"commit")
        proxy.cut_after_send(is_on=True)
        client.say(b" now")
        await server.heard(b"commit now")
        heard.writer.write(b"done")
        assert await client.end() == "reset"
    proxy.cut_after_send(is_on=False)
    async with connected(proxy) as client:
        client.say(b"again")
        (await server.heard(b"again", 1)).writer.write(b"done")
        assert await client.hear(4) == b"done"


async def test_duplicated_connection_says_everything_twice(server: Server, proxy: TcpProxy) -> None:
    """The server receives a duplicated connection twice, and the client gets one reply."""
    proxy.duplicate(is_on=True)
    async with connected(proxy) as client:
        client.say(b"once")
        first = await server.heard(b"once", 0)
        second = await server.heard(b"once", 1)
        first.writer.write(b"A")
        second.writer.write(b"A")
        assert await client.hear(1) == b"A"
        proxy.duplicate(is_on=False)
        # The kernel decides which of the two is the duplicate: one ends, and the other receives the rest.
        await until(lambda: [first.end, second.end].count("closed") == 1)
        client.say(b" more")
        left = first if second.end else second
        await until(lambda: bytes(left.said) == b"once more")
    assert (proxy.traffic.doubled, proxy.effects().doubled_bytes) == (1, 4)
    async with connected(proxy) as client:
        client.say(b"single")
        await server.heard(b"single", 2)
    assert len(server.connections) == 3


async def test_swallowed_words_to_the_server_never_come(server: Server, proxy: TcpProxy) -> None:
    """Bytes to the server that are swallowed never arrive, and the next bytes after the fault reset the connection."""
    async with connected(proxy) as client:
        client.say(b"a")
        heard = await server.heard(b"a")
        proxy.swallow(towards_server=True, towards_client=False)
        client.say(b"lost")
        await until(lambda: proxy.traffic.effects.swallowed_bytes == 4)
        heard.writer.write(b"news")
        assert await client.hear(4) == b"news"
        proxy.swallow(towards_server=False, towards_client=False)
        client.say(b"b")
        assert await client.end() == "reset"
    await until(lambda: heard.end == "reset")
    assert bytes(heard.said) == b"a"
    async with connected(proxy) as client:
        client.say(b"new")
        await server.heard(b"new", 1)


async def test_swallowed_words_to_the_client_never_come(server: Server, proxy: TcpProxy) -> None:
    """While replies are swallowed, the server receives the client's bytes, and the client receives nothing."""
    async with connected(proxy) as client:
        proxy.swallow(towards_server=False, towards_client=True)
        client.say(b"question")
        heard = await server.heard(b"question")
        heard.writer.write(b"answer")
        await until(lambda: proxy.traffic.effects.swallowed_bytes == 6)
        client.say(b" again")
        await server.heard(b"question again")
        proxy.swallow(towards_server=False, towards_client=False)
        heard.writer.write(b"late")
        assert await client.end() == "reset"


async def test_end_that_was_swallowed_is_heard_of_after_the_mending(server: Server, proxy: TcpProxy) -> None:
    """The server notices the end of a client only after the fault that swallowed it."""
    async with connected(proxy) as client:
        client.say(b"a")
        heard = await server.heard(b"a")
        proxy.swallow(towards_server=True, towards_client=False)
        client.say(b"b")
    await until(lambda: proxy.traffic.effects.swallowed_bytes == 1)
    assert heard.end == ""
    async with connected(proxy) as other:
        other.say(b"c")
        await until(lambda: proxy.traffic.effects.swallowed_bytes == 2)
        assert heard.end == ""
        proxy.swallow(towards_server=False, towards_client=False)
    await until(lambda: heard.end == "reset")


async def test_cut_resets_both_ends(server: Server, proxy: TcpProxy) -> None:
    """A cut resets both ends of every connection, and new connections are accepted."""
    async with connected(proxy) as one, connected(proxy) as two:
        one.say(b"1")
        two.say(b"2")
        await until(lambda: [len(heard.said) for heard in server.connections] == [1, 1])
        proxy.cut()
        assert [await one.end(), await two.end()] == ["reset", "reset"]
        await until(lambda: [heard.end for heard in server.connections] == ["reset", "reset"])
    async with connected(proxy) as three:
        three.say(b"3")
        await server.heard(b"3", 2)
    assert (proxy.traffic.resets, proxy.effects().cut) == (2, 2)


async def test_client_that_is_killed_is_a_reset_for_the_server(server: Server, proxy: TcpProxy) -> None:
    """A client that is killed resets its connection at the server."""
    async with connected(proxy) as client:
        client.say(b"a")
        heard = await server.heard(b"a")
        reset(client.writer)
        await until(lambda: heard.end == "reset")
