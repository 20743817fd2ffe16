"""The same backend over HTTP: JSON, problems, and a feed of events."""
