"""Targets can fail: each mistake that is planted here is found by the inputs that a target begins with, or near."""

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core import cron, cron_days, cursors, events
from holdfast.gateway import tokens
from holdfast.gateway.grpc import public
from holdfast.gateway.http import strict_json
from holdfast.gateway.http.arriving import Arrivals
from holdfast.journal import recovery, survey
from holdfast.topology import ensemble_url
from tests.fuzz import corpus
from tests.fuzz.mutation import mutated
from tests.fuzz.running import failure_of
from tests.fuzz.target import target

INPUTS = 400


def _is_found(name: str) -> bool:
    """Whether one of the first inputs fails."""
    chosen, rng = target(name), random.Random(0)
    inputs = [*(path.read_bytes() for path in corpus.kept(name)), *chosen.seeds]
    tried = (inputs[number] if number < len(inputs) else mutated(rng, inputs) for number in range(INPUTS))
    return any(failure_of(chosen.fuzz, data) for data in tried)


def _unchecked(job_id: str) -> str:
    if not job_id:
        raise ValueError("a bug, not a refusal")
    return job_id


def _last_part_only(arrivals: Arrivals, url: bytes) -> None:
    arrivals._url = url


def _later(text: str, timezone: str, after_ms: int, found: Callable[..., int] = cron.next_after) -> int:
    return found(text, timezone, after_ms) + 60_000


def _anybody(table: tokens.TokenTable, _digest: bytes) -> tokens.Token | None:
    return next(iter(table._tokens.values()), None)


#: The target that must find it, where the mistake is, and what is there instead.
PLANTED: dict[str, tuple[str, object, str, object]] = {
    "damage is not refused": ("journal", recovery, "refuse_damage", lambda _: None),
    "sealed segments are not read": ("journal", survey, "_verify_sealed", lambda *_: None),
    "text that is not UTF-8": ("events", events, "decode", events._decoder.decode),
    "a cursor of another query": ("cursors", cursors, "_checksum", lambda _: 0),
    "any token will do": ("tokens", tokens.TokenTable, "find", _anybody),
    "a tick too late": ("cron", cron, "next_after", _later),
    "a range of one with a step": ("cron", cron_days, "_LONE_RANGE", re.compile("(?!)")),
    "a refusal that is a bug": ("grpc", public, "checked_id", _unchecked),
    "a URL in two pieces": ("http_stream", Arrivals, "on_url", _last_part_only),
    "a name twice in an object": ("strict_json", strict_json, "_NAMES", strict_json._DECODER),
    "a password in a message": ("urls", ensemble_url, "masked", lambda text: text),
}


@pytest.fixture(autouse=True)
def _forgetful() -> Any:  # noqa: ANN401 - a generator
    """What was read of expressions with a mistake in place is forgotten afterwards, and before."""
    for cache in (cron_days.expression, cron.canonical, cron_days._ticks_of_change):
        cache.cache_clear()
    yield
    for cache in (cron_days.expression, cron.canonical, cron_days._ticks_of_change):
        cache.cache_clear()


@pytest.mark.parametrize("mistake", PLANTED)
def test_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that could not fail would prove nothing."""
    name, owner, attribute, instead = PLANTED[mistake]
    monkeypatch.setattr(owner, attribute, instead)
    assert _is_found(name)
