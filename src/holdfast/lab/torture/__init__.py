"""Real processes of a topology under load and faults, all of it drawn from a seed and written down for the judge."""
