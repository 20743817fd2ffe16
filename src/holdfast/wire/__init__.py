"""The wire: the protocol of our own clients and workers, over Unix sockets and TCP.

A connection begins with the four bytes `MAGIC`. Everything after them is frames, in both directions: four bytes of
length (big endian), then one msgpack array. Arrays grow at their end: a reader ignores elements that it does not know,
and takes the default for elements that are missing.

    client   MAGIC, Opening(version_min, version_max, purpose, token, program, shard)
    server   Opened(version) or Opened(0, code, reason, message), after which it closes the connection

The purpose is `calls` or `work`. `shard` is that of a cluster: a node that does not lead it refuses the connection and
names the leader. Without a shard, any node takes calls and forwards them. A client that knows one version only need not
wait for `Opened` before it goes on.

    calls    client: Call(id, method, request); an empty method cancels the call of that id
             server: Reply(id, LAST, response), Reply(id, MORE, response) for the items of a stream,
                     Reply(id, ERROR, WireFailure(code, reason, message)); id 0: the connection itself, which then ends
    work     worker: WorkerMessage, the first one with an introduction
             server: Push(LAST, Directive) or Push(ERROR, WireFailure), after which it closes the connection

`methods` lists the methods with their requests and responses, which are values of the ports. No authentication is
needed on the socket of a directory, which only its owner may open. On a TCP port, the token in `Opening` is checked
before anything else is read, and `Opening` has a size limit of its own.

How to change it: append fields with defaults, add methods. For anything else add a version, and serve both as long as
clients of the old one exist.
"""
