"""The HTTP interface: JSON, problem responses, and an event stream."""
