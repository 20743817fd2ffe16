"""The state machines of the three owners: records, waiting jobs and envelopes. Pure, like `core`."""
