"""The gRPC interfaces: the frozen contract and `holdfast.v1`."""
