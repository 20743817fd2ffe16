"""Code generated from proto/*.proto by `make proto`; `make check` fails when it is stale."""
