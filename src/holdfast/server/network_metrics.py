"""The numbers of the network front, the same for every topology, as Prometheus reads them."""

_PAGE = """\
# HELP holdfast_certificate_reloads_total Changed certificates, by whether they could be used.
# TYPE holdfast_certificate_reloads_total counter
holdfast_certificate_reloads_total{{outcome="taken"}} {taken}
holdfast_certificate_reloads_total{{outcome="refused"}} {refused}
# HELP holdfast_grpc_connections_ended_total Connections without a call that was let in, ended for there were too many.
# TYPE holdfast_grpc_connections_ended_total counter
holdfast_grpc_connections_ended_total {ended}
"""


def front_page(*, certificates_taken: int, certificates_refused: int, connections_ended: int) -> bytes:
    """The page."""
    return _PAGE.format(taken=certificates_taken, refused=certificates_refused, ended=connections_ended).encode()
