"""Child processes that do not outlive their parent.

On Linux the kernel kills the child when its parent dies. In addition, and on other systems, the child exits when its
standard input closes.
"""

import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Requests Linux to kill this process when the thread that started it ends; does nothing elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def lifeline() -> None:
    """Lets this process exit at once when its parent does, or when its standard input closes."""
    die_with_parent()
    threading.Thread(target=_watch, name="holdfast-lifeline", daemon=True).start()


def _watch() -> None:
    while os.read(sys.stdin.fileno(), 4_096):
        pass
    os._exit(70)
