"""The monolith topology: equal nodes, each with a ledger and slots of its own."""
