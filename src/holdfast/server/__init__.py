"""Where requests come in: encoding, status codes and limits, written once over the ports of backends."""
