"""Children that do not outlive their parent.

The kernel is asked to kill the child when its parent dies; where it cannot be asked, the end of the child's standard
input tells it.
"""

import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Asks Linux to kill this process when its parent's thread ends; elsewhere does nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def lifeline() -> None:
    """From now on this process ends, at once, when its standard input does."""
    threading.Thread(target=_watch, name="holdfast-lifeline", daemon=True).start()


def _watch() -> None:
    while os.read(sys.stdin.fileno(), 4_096):
        pass
    os._exit(70)
