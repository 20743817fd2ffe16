"""Limits and defaults that users rely on."""

import re
from pathlib import Path

import pytest

from holdfast import limits

FROZEN = {
    "OUTPUT_BYTES_MAX": 262_144,
    "PAGE_SIZE_DEFAULT": 50,
    "PAGE_SIZE_MAX": 200,
    "DEDUP_KEYS_DEFAULT": 10_000,
    "HEARTBEAT_MS": 1_000,
    "WORKER_TIMEOUT_MS": 4_000,
    "FETCH_RETRY_MS_DEFAULT": 200,
    "FETCH_RETRY_MS_MIN": 50,
    "FETCH_RETRY_MS_MAX": 1_000,
    "DEADLINE_MS_SUBMIT": 3_000,
    "DEADLINE_MS_CANCEL": 3_000,
    "DEADLINE_MS_STATUS": 1_000,
    "DEADLINE_MS_RESULT": 1_000,
    "DEADLINE_MS_LIST": 1_000,
    "DEADLINE_MS_INTERNAL": 1_000,
    "DEADLINE_MS_FETCH": 1_500,
    "DEADLINE_MS_HEARTBEAT": 1_000,
    "RETRY_FIRST_MS": 100,
    "RETRY_FACTOR": 2.0,
    "RETRY_MS_MAX": 1_000,
    "RETRY_ATTEMPTS": 4,
}


@pytest.mark.parametrize(("name", "value"), FROZEN.items())
def test_numbers_of_the_frozen_contract_stay(name: str, value: float) -> None:
    """A number of the frozen contract has exactly that value."""
    assert getattr(limits, name) == value


def test_a_whole_batch_fits_into_a_message() -> None:
    """The largest payload fits into a batch, and the largest batch fits into a message."""
    assert limits.PAYLOAD_BYTES_MAX < limits.BATCH_BYTES_MAX < limits.MESSAGE_BYTES_MAX


@pytest.mark.parametrize("name", ["default", "a.b-c_D9", "x" * limits.NAME_CHARS_MAX])
def test_plain_names_fit_the_pattern(name: str) -> None:
    """A name consists of letters, digits, dot, underscore and hyphen, up to its maximum length."""
    assert re.fullmatch(limits.NAME_PATTERN, name)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "a\n", "x" * (limits.NAME_CHARS_MAX + 1)])
def test_other_names_do_not(name: str) -> None:
    """An empty name, a name that is too long or one with another character is invalid."""
    assert not re.fullmatch(limits.NAME_PATTERN, name)


@pytest.mark.parametrize("file", ["limits.py", "topologies/zookeeper/ensemble_limits.py"])
def test_every_limit_has_its_reason(root: Path, file: str) -> None:
    """Each group of limits has a comment above it that gives the reason."""
    lines = (root / "src/holdfast" / file).read_text().splitlines()
    groups = [
        lines[number - 1]
        for number, line in enumerate(lines)
        if re.match(r"[A-Z]\w*: Final", line) and not re.match(r"[A-Z_]\w*: Final", lines[number - 1])
    ]
    assert [line for line in groups if not line.startswith("# ")] == []
