"""Tuning of the garbage collector for a process with very many jobs."""

import gc


def tune_collector() -> None:
    """Prevents the cyclic garbage collector from visiting all jobs repeatedly.

    It does not track jobs, but it tracks the dicts and deques that contain a million of them, and a full collection
    visits every entry. Objects that exist at the start are exempted, and full collections become rare; young objects
    are collected as usual. No collection precedes the freeze, because it would visit all jobs.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
