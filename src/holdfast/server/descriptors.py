"""The limit of open descriptors of this process."""

import resource
import sys


def descriptor_limit() -> int:
    """Returns the number of descriptors that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize
