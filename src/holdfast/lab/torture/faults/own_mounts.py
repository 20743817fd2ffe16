"""What this process mounts from now on is seen by it and its children alone, and gone with the last of them.

So a torture that is killed leaves nothing mounted. What others mount is still seen here.
"""

import ctypes
import os

_NEW_NAMESPACE = 0x0002_0000
_RECURSIVE, _SLAVE = 1 << 14, 1 << 19


def have_own_mounts() -> bool:
    """Whether it may be so: only for root, who alone can mount anything."""
    if os.geteuid() != 0:
        return False
    library = ctypes.CDLL(None)
    return not (library.unshare(_NEW_NAMESPACE) or library.mount(b"none", b"/", None, _RECURSIVE | _SLAVE, None))
