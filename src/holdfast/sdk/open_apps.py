"""What is open in this process: closed when the interpreter ends, let go of in a forked child.

The one state that belongs to the process and to no app, because both hooks do.
"""

import atexit
import os
import weakref

from holdfast.sdk.connection import AppConnection

OPEN: "weakref.WeakSet[AppConnection]" = weakref.WeakSet()


def _close_all() -> None:
    for connection in list(OPEN):
        connection.close(timeout_s=0)  # who wants running jobs to be finished closes the app before the program ends


def _disown_all() -> None:
    for connection in list(OPEN):
        connection.disown()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_disown_all)
