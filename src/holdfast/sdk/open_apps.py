"""The open connections of this process: closed at interpreter exit, disowned in a forked child.

This is the only state that belongs to the process and not to an app, because both hooks belong to the process.
"""

import atexit
import os
import weakref

from holdfast.sdk.connection import AppConnection

OPEN: "weakref.WeakSet[AppConnection]" = weakref.WeakSet()


def _close_all() -> None:
    for connection in list(OPEN):
        connection.close(timeout_s=0)  # a program that wants running jobs to finish closes its app before it ends


def _disown_all() -> None:
    for connection in list(OPEN):
        connection.disown()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_disown_all)
