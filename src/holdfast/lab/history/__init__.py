"""What happened in a run, as everybody in it has written it down: clients, workers, the store, and who broke things."""
