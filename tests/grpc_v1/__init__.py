"""A client of `holdfast.v1` over gRPC, as programs in other languages have one.

The product's own clients use the wire. This one runs the behaviour suite and the tests of the gRPC server.
"""
