"""The processes of the microservices topology: each owns one domain, behind gRPC. See docs/decisions/0009."""
