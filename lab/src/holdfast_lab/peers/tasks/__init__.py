"""The jobs as each system wants them written; its own worker command imports one of these modules."""
