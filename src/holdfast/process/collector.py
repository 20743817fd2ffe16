"""The collector of cycles in a process that holds very many jobs."""

import gc


def tune_collector() -> None:
    """Keeps the collector of cycles from walking over all jobs again and again.

    Jobs are not tracked by it, but the dicts and deques that hold a million of them are, and a full collection visits
    every entry. What exists at the start is exempted, and full collections become rare; young garbage is
    collected as ever.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
