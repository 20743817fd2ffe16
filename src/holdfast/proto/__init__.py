"""Code generated from proto/*.proto by `make proto`; `make check` fails when it is stale."""

try:
    import google.protobuf  # noqa: F401 - for an error that says what to install
except ModuleNotFoundError as error:
    message = "holdfast.proto needs protobuf and gRPC: pip install 'holdfast[server]'"
    raise ModuleNotFoundError(message, name=error.name) from None
