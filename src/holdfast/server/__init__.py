"""The server: request encoding, status codes and limits, on top of the ports of any backend."""
