"""The history of a run, recorded by all participants: clients, workers, the store, and the faults."""
