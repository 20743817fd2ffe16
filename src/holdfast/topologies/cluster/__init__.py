"""The cluster topology: ledgers whose journals are in PostgreSQL, so that they survive the loss of a machine."""
