"""The state machines of the three owners: records, waiting jobs, results. Pure, as `core` is."""
