"""One client as a process of its own, so that several use several cores.

On standard input comes the task, and after the word `ready` on standard output the moment to begin; then the records go
to standard output. Whoever started it holds its standard input open; when that ends, so does this process.
"""

import os
import sys
import threading

import msgspec
import uvloop

from holdfast.lab.compare.loading import ClientTask, Load

CONNECT_S = 20.0
READY = b"ready\n"


async def main() -> None:
    """Loads once."""
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=ClientTask)
    load = Load(task)
    await load.caller.connect(CONNECT_S)
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    begin = sys.stdin.buffer.readline()
    if not begin:
        return
    threading.Thread(target=_end_with_the_other_side, daemon=True).start()
    await load.run(int(begin))
    await load.caller.close()
    sys.stdout.buffer.write(msgspec.msgpack.encode(load.records.pack()))
    sys.stdout.buffer.flush()


def _end_with_the_other_side() -> None:
    """Nobody writes any more: what ends this read is the end of whoever wants the records."""
    sys.stdin.buffer.readline()
    os._exit(1)


if __name__ == "__main__":
    uvloop.run(main())
    # The thread still reads; nothing is left to be written.
    os._exit(0)
