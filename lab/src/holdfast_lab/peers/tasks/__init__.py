"""The jobs in the form that each system requires; its own worker command imports one of these modules."""
