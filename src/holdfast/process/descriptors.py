"""How many files and connections this process may have open at once."""

import contextlib
import resource

#: More than all bounds on connections together; what goes through all of them one by one still ends.
_WANTED = 65_536


def allow_many() -> None:
    """Takes as many as are allowed: where connections use them up, the journal could open no file, and would end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # then it is as it was
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
