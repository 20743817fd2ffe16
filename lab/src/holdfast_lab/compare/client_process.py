"""One client as a process of its own, so that several use several cores.

It reads its task from standard input, prints `ready`, reads the time to begin, and writes its records to standard
output. The parent keeps standard input open; this process ends when it is closed.
"""

import os
import sys
import threading

import msgspec
import uvloop

from holdfast_lab.compare.load_client import ClientLoad, ClientTask

CONNECT_S = 20.0
READY = b"ready\n"


async def main() -> None:
    """Run one load."""
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=ClientTask)
    load = ClientLoad(task)
    await load.caller.connect(CONNECT_S)
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    begin = sys.stdin.buffer.readline()
    if not begin:
        return
    threading.Thread(target=_end_with_parent, daemon=True).start()
    await load.run(int(begin))
    await load.caller.close()
    sys.stdout.buffer.write(msgspec.msgpack.encode(load.records.pack()))
    sys.stdout.buffer.flush()


def _end_with_parent() -> None:
    """End when the parent has closed standard input; it writes nothing more."""
    sys.stdin.buffer.readline()
    os._exit(1)


if __name__ == "__main__":
    uvloop.run(main())
    # Without waiting for the thread, which still reads.
    os._exit(0)
