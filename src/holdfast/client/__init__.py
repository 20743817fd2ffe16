"""The client side of the wire."""
