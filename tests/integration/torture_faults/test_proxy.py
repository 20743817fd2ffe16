"""The roads of a torture: each way to make one bad, with real sockets."""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator

import pytest

from holdfast.lab.torture.faults.proxy import TcpProxy
from holdfast.lab.torture.faults.weather import reset
from tests.e2e.fleet import stable_port
from tests.integration.torture_faults.talking import Server, connected, proxied, serving, until


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Whoever is at the other end."""
    async with serving() as made:
        yield made


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[TcpProxy]:
    """The road to it."""
    async with proxied(server.port) as made:
        yield made


async def test_good_road_carries_both_ways_and_closes_one_way_at_a_time(server: Server, proxy: TcpProxy) -> None:
    """What is said arrives, and whoever has said all may still listen."""
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
    """Many chunks keep their order, whoever is the slower one."""
    data = random.Random(7).randbytes(12 << 20)
    async with connected(proxy) as client:
        client.say(data)
        client.writer.write_eof()
        await until(lambda: server.connections and server.connections[0].end == "closed")
    assert hashlib.sha256(server.connections[0].said).digest() == hashlib.sha256(data).digest()


async def test_nobody_at_the_other_end_is_a_reset() -> None:
    """A road that leads nowhere does not keep anybody waiting."""
    async with proxied(stable_port()) as proxy, connected(proxy) as client:
        assert await client.end() == "reset"
    assert proxy.traffic.refused == 1


async def test_connection_that_comes_while_the_road_is_closed_is_reset(server: Server) -> None:
    """Whoever is let in and turned away before anything was done for it is not left waiting."""
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
    """Both ends are closed, even if its last step is interrupted."""
    proxy = await TcpProxy.open("127.0.0.1", server.port)
    async with connected(proxy) as client:
        client.say(b"word")
        heard = await server.heard(b"word")
        (road,) = proxy._roads
        road._is_over.set()
        await asyncio.sleep(0)  # from here on it waits for its tasks, which are to stop
        await proxy.close()
        assert road._out.sink.is_closing()
        assert road._back.sink.is_closing()
        await until(lambda: heard.end)
        await client.end()


async def test_delayed_bytes_come_later_and_in_order(server: Server, proxy: TcpProxy) -> None:
    """Each way takes at least so long, and what is said after the mending does not overtake."""
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
    """The server has got it all, and the client is reset instead of answered."""
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
    """The server hears the same on two connections; the client hears one answer; mended, the second is left."""
    proxy.duplicate(is_on=True)
    async with connected(proxy) as client:
        client.say(b"once")
        first = await server.heard(b"once", 0)
        second = await server.heard(b"once", 1)
        first.writer.write(b"A")
        second.writer.write(b"A")
        assert await client.hear(1) == b"A"
        proxy.duplicate(is_on=False)
        # Which of the two is the twin is the kernel's choice: one of them ends, and the other hears the rest.
        await until(lambda: [first.end, second.end].count("closed") == 1)
        client.say(b" more")
        left = first if second.end else second
        await until(lambda: bytes(left.said) == b"once more")
    assert (proxy.traffic.doubled, proxy.harm().doubled_bytes) == (1, 4)
    async with connected(proxy) as client:
        client.say(b"single")
        await server.heard(b"single", 2)
    assert len(server.connections) == 3


async def test_swallowed_words_to_the_server_never_come(server: Server, proxy: TcpProxy) -> None:
    """The other direction goes on; after the mending the next word resets, and a new connection works."""
    async with connected(proxy) as client:
        client.say(b"a")
        heard = await server.heard(b"a")
        proxy.swallow(towards_server=True, towards_client=False)
        client.say(b"lost")
        await until(lambda: proxy.traffic.harm.swallowed_bytes == 4)
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
    """What the client says still arrives, and it never learns of it."""
    async with connected(proxy) as client:
        proxy.swallow(towards_server=False, towards_client=True)
        client.say(b"question")
        heard = await server.heard(b"question")
        heard.writer.write(b"answer")
        await until(lambda: proxy.traffic.harm.swallowed_bytes == 6)
        client.say(b" again")
        await server.heard(b"question again")
        proxy.swallow(towards_server=False, towards_client=False)
        heard.writer.write(b"late")
        assert await client.end() == "reset"


async def test_end_that_was_swallowed_is_heard_of_after_the_mending(server: Server, proxy: TcpProxy) -> None:
    """A client that goes away meanwhile is still there for the server."""
    async with connected(proxy) as client:
        client.say(b"a")
        heard = await server.heard(b"a")
        proxy.swallow(towards_server=True, towards_client=False)
        client.say(b"b")
    await until(lambda: proxy.traffic.harm.swallowed_bytes == 1)
    assert heard.end == ""
    async with connected(proxy) as other:
        other.say(b"c")
        await until(lambda: proxy.traffic.harm.swallowed_bytes == 2)
        assert heard.end == ""
        proxy.swallow(towards_server=False, towards_client=False)
    await until(lambda: heard.end == "reset")


async def test_cut_resets_both_ends(server: Server, proxy: TcpProxy) -> None:
    """Every connection there is ends at once, and new ones are welcome."""
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
    assert (proxy.traffic.resets, proxy.harm().cut) == (2, 2)


async def test_client_that_is_killed_is_a_reset_for_the_server(server: Server, proxy: TcpProxy) -> None:
    """An end without a word is passed on as one."""
    async with connected(proxy) as client:
        client.say(b"a")
        heard = await server.heard(b"a")
        reset(client.writer)
        await until(lambda: heard.end == "reset")
