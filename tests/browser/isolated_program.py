"""Runs a program without netlink sockets: `python isolated_program.py PROGRAM ARGUMENT...`.

A browser aborts every request when a network interface appears or disappears, even requests to this machine; other
tests create networks. A seccomp filter refuses netlink sockets, so the browser gets no such notifications and assumes
that it is online. If the kernel does not support the filter, the program runs without it.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

_AF_NETLINK = 16
_SET_SECCOMP, _FILTER, _NO_NEW_PRIVILEGES = 22, 2, 38
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EAFNOSUPPORT
#: For each machine: the kernel's number for the architecture, and the number of the `socket` system call.
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
# The instructions of the filter: load a word of the call, compare it, return.
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _MACHINE_AT, _FAMILY_AT = 0, 4, 16


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def refuse_netlink(machine: int, socket_call: int) -> None:
    """Installs the filter for this process and its children."""
    steps = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_IF_EQUAL, 0, 5, machine),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_IF_EQUAL, 0, 3, socket_call),
        (_LOAD, 0, 0, _FAMILY_AT),
        (_IF_EQUAL, 0, 1, _AF_NETLINK),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program = _Program(len(steps), b"".join(struct.pack("=HBBI", *step) for step in steps))
    library = ctypes.CDLL(None)
    for arguments in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)):
        if library.prctl(*arguments):
            return


if __name__ == "__main__":
    if platform.machine() in _MACHINES:
        refuse_netlink(*_MACHINES[platform.machine()])
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - replaces this process by the program
