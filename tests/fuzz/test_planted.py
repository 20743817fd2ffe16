"""Targets can fail: each planted bug is found by the known inputs of its target, or by edits of them."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, find
from hypothesis.errors import NoSuchExample

from holdfast import settings_sources
from holdfast.client import wire_line, wire_redirect, wire_transport
from holdfast.core import cron, cron_days, cursors, events, failure, image, trace_context
from holdfast.errors import HoldfastError, InvalidArgumentError
from holdfast.journal import backup, recovery, snapshot, survey
from holdfast.journal.disk import File
from holdfast.sdk import codec
from holdfast.server.auth import permissions, tokens
from holdfast.server.grpc import public_service
from holdfast.server.http import request, strict_json
from holdfast.server.http.request_parser import RequestParser
from holdfast.server.wire import connection
from holdfast.server.wire.conversation import Conversation
from holdfast.topologies import backup_archive
from holdfast.topologies.microservices.state import envelopes, records, waiting_jobs
from holdfast.topologies.pipeline.backend import port_rpc
from holdfast.topologies.pipeline.roles import coordinator
from holdfast.topologies.zookeeper import ensemble_url
from holdfast.topologies.zookeeper.backend import records as zookeeper_records
from holdfast.wire.frames import FrameReader
from holdfast.worker.executors import frames
from holdfast_lab.history import files
from tests.fuzz.campaign import failure_of
from tests.fuzz.strategy import inputs_near, known_inputs, search_settings
from tests.fuzz.target import NAMES, Target, target

INPUTS = 2_000


def _is_found(before: Target) -> bool:
    """Whether an input fails: a stored one, a seed made without or with the bug, or an edit of one of them."""
    chosen = target(before.name)
    known = list(dict.fromkeys([*known_inputs(before), *chosen.seeds]))

    def fails(data: bytes) -> bool:
        return bool(failure_of(chosen.fuzz, data))

    if any(map(fails, known)):
        return True
    try:
        find(inputs_near(known), fails, settings=search_settings(INPUTS, Phase.generate))
    except NoSuchExample:
        return False
    return True


def _unchecked(job_id: str) -> str:
    if not job_id:
        raise ValueError("a bug, not a refusal")
    return job_id


def _last_part_only(arrivals: RequestParser, url: bytes) -> None:
    arrivals._url = url


def _later(text: str, timezone: str, after_ms: int, found: Callable[..., int] = cron.next_after) -> int:
    return found(text, timezone, after_ms) + 60_000


def _any_token(table: tokens.TokenTable, _digest: bytes) -> tokens.Token | None:
    return next(iter(table._tokens.values()), None)


def _piece_by_piece(reader: FrameReader, data: bytes) -> list[bytes]:
    return reader._cut(data)


def _late_refusal(
    talk: Conversation,
    call_id: int,
    opened: Any,  # noqa: ANN401 - a call in progress
    reply: object,
    request: object = None,
    answer: Callable[..., None] = Conversation._answer,
) -> None:
    is_late = opened.method.name == "jobs.retry" and not isinstance(reply, HoldfastError)
    answer(talk, call_id, opened, InvalidArgumentError("it has begun") if is_late else reply, request)


def _unchecked_chunks(file: File, _name: str) -> Iterator[bytes]:
    offset, size = snapshot._HEADER_BYTES, snapshot._CHUNK.size
    while mark := file.read_at(offset, size):
        chunk_bytes, _ = snapshot._CHUNK.unpack(mark)
        if not chunk_bytes:
            return
        yield file.read_at(offset + size, chunk_bytes)
        offset += size + chunk_bytes


#: The errors of a decoder for text that is not UTF-8 and for deep nesting, and an error that no code expects instead.
_TEXT, _DEPTH, _MISSED = "UnicodeDecodeError", "RecursionError", KeyError
_ANY_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-.*)?")

#: By description of the bug: the target that must find it, the object and the attribute, and the replacement.
PLANTED: dict[str, tuple[str, object, str, object]] = {
    "any name in an archive": ("archives", backup_archive, "_NAME", re.compile(".*", re.DOTALL)),
    "a seal that is not checked": ("backup_file", backup.Backup, "sealed", lambda it: it),
    "an outcome that cannot be sent": ("child", frames, "_is_outcome", lambda _: True),
    "a note that cannot be sent": ("child", frames, "_is_note", lambda _: True),
    "a payload without an end": ("codec", codec, _DEPTH, _MISSED),
    "a tick too late": ("cron", cron, "next_after", _later),
    "a range of one with a step": ("cron", cron_days, "_LONE_RANGE", re.compile("(?!)")),
    "a cursor of another query": ("cursors", cursors, "_checksum", lambda _: 0),
    "an envelope that is no text": ("envelopes", envelopes, _TEXT, _MISSED),
    "text that is not UTF-8": ("events", events, "decode", events._decoder.decode),
    "a refusal that is a bug": ("grpc", public_service, "checked_id", _unchecked),
    "a history that is no text": ("history", files, "_UNREADABLE", msgspec.MsgspecError),
    "a body that does not fit": ("http_json", request, "converted", msgspec.convert),
    "a URL in two pieces": ("http_stream", RequestParser, "on_url", _last_part_only),
    "an image without its jobs": ("image", image, "_batches", lambda _: iter(())),
    "damage is not refused": ("journal", recovery, "refuse_damage", lambda _: None),
    "sealed segments are not read": ("journal", survey, "_verify_sealed", lambda *_: None),
    "a ticket that is no text": ("line", waiting_jobs, _TEXT, _MISSED),
    "an output without an end": ("outputs", failure, _DEPTH, _MISSED),
    "an answer that is no text": ("port_rpc", port_rpc, _TEXT, _MISSED),
    "a record that is no text": ("records", records, _TEXT, _MISSED),
    "a worker that no database can hold": ("roles", coordinator, "check_name", lambda *_: None),
    "a setting without an end": ("settings", settings_sources, _DEPTH, _MISSED),
    "chunks that are not checked": ("snapshot", snapshot, "_read_chunks", _unchecked_chunks),
    "a name twice in an object": ("strict_json", strict_json, "_NAMES", strict_json._DECODER),
    "any token will do": ("tokens", tokens.TokenTable, "find", _any_token),
    "a trace of zeros": ("trace_context", trace_context, "_FORM", _ANY_PARENT),
    "a password in a message": ("urls", ensemble_url, "masked", lambda text: text),
    "a reply that is no text": ("wire_client", wire_transport, "MALFORMED", msgspec.DecodeError),
    "a directive that is no text": ("wire_client", wire_line, "MALFORMED", msgspec.DecodeError),
    "a port that does not exist": ("wire_client", wire_redirect, "_PORT_MAX", 1 << 32),
    "a frame in two pieces": ("wire_frames", FrameReader, "feed", _piece_by_piece),
    "a message that is no text": ("wire_server", connection, "MALFORMED", msgspec.DecodeError),
    "a scope that no call needs": ("wire_server", permissions.Caller, "require", lambda *_: None),
    "a refusal after the effect": ("wire_server", Conversation, "_answer", _late_refusal),
    "a node that is no text": ("zookeeper_records", zookeeper_records, _TEXT, _MISSED),
}


@pytest.fixture(autouse=True)
def _forgetful() -> Any:  # noqa: ANN401 - a generator
    """Clears the caches of cron before and after each test, because a planted bug changes their content."""
    for cache in (cron_days.expression, cron.canonical, cron_days._ticks_of_change):
        cache.cache_clear()
    yield
    for cache in (cron_days.expression, cron.canonical, cron_days._ticks_of_change):
        cache.cache_clear()


@pytest.mark.parametrize("mistake", PLANTED)
def test_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target finds the planted bug, which proves that it can fail."""
    name, owner, attribute, instead = PLANTED[mistake]
    before = target(name)
    # A builtin is replaced by adding its name to the module.
    monkeypatch.setattr(owner, attribute, instead, raising=attribute not in {_TEXT, _DEPTH})
    assert _is_found(before)


def test_every_target_has_a_mistake_to_find() -> None:
    """Every target has a planted bug."""
    assert {name for name, *_ in PLANTED.values()} == set(NAMES)
