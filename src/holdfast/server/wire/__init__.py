"""The server's side of the wire: connections, calls and workers' sessions."""
