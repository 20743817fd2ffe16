"""How many files and connections this process may have open at once, and what part of them a protocol may use."""

import resource
import sys


def descriptor_limit() -> int:
    """The number of descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize
