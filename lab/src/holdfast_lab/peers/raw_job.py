"""A job as the raw peers, NATS and beanstalkd, carry it. They know bytes only; we have written their workers."""

import msgspec


class RawJob(msgspec.Struct, frozen=True, array_like=True):
    """A function of `work`, its arguments, and the ticket that comes back with its result."""

    function: str
    arguments: list[int | float] = []
    ticket: int = 0


class RawResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of a job, and the ticket of the job."""

    value: int
    ticket: int = 0


encode = msgspec.json.Encoder().encode
decode_job = msgspec.json.Decoder(RawJob).decode
decode_result = msgspec.json.Decoder(RawResult).decode

NOTHING = encode(RawJob("nothing"))


def nothing_with(ticket: int) -> bytes:
    """A no-op whose result can be told from others."""
    return encode(RawJob("nothing", ticket=ticket))


def pauses(indexes: range, seconds: float) -> list[bytes]:
    """Jobs that take time and leave records."""
    return [encode(RawJob("pause", [index, seconds])) for index in indexes]
