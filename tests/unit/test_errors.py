"""The exception tree and its table."""

import builtins
import re
from pathlib import Path

import grpc
import pytest

from holdfast import errors
from holdfast.errors import MAPPED, Code, ExitCode, HoldfastError, code_of_grpc, error_class


@pytest.mark.parametrize("code", Code)
def test_every_code_has_one_row_and_one_error(code: Code) -> None:
    """Each code is in the table, and one exception class carries it."""
    assert code in MAPPED
    assert error_class(code).code is code


@pytest.mark.parametrize("code", Code)
def test_grpc_numbers_are_those_of_grpc(code: Code) -> None:
    """The status numbers, written without importing grpc, are the ones that grpc uses."""
    assert MAPPED[code].grpc_status == grpc.StatusCode[code.name].value[0]
    assert code_of_grpc(MAPPED[code].grpc_status) is code


def test_unknown_grpc_status_is_internal() -> None:
    """A status that Holdfast never sends is reported as an internal error."""
    assert code_of_grpc(grpc.StatusCode.DATA_LOSS.value[0]) is Code.INTERNAL


def test_only_three_codes_are_retryable() -> None:
    """A caller may repeat a call after these three codes and no others."""
    retryable = {code for code, row in MAPPED.items() if row.retryable}
    assert retryable == {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED}
    assert {code for code in Code if error_class(code).retryable} == retryable


def test_http_statuses_are_distinct_errors() -> None:
    """Every code has an HTTP status of its own, and each of them is an error."""
    statuses = [row.http_status for row in MAPPED.values()]
    assert len(set(statuses)) == len(statuses)
    assert all(400 <= status < 600 for status in statuses)


def test_exit_codes_are_the_documented_ones() -> None:
    """No error exits as success or as a failed job, and exit codes keep their numbers."""
    assert [(code.name, code.value) for code in ExitCode] == [
        ("DONE", 0),
        ("JOB_FAILED", 1),
        ("USAGE", 2),
        ("UNREACHABLE", 3),
        ("REFUSED", 4),
        ("UNKNOWN", 5),
    ]
    assert {row.exit_code for row in MAPPED.values()}.isdisjoint({ExitCode.DONE, ExitCode.JOB_FAILED})


def test_error_carries_reason_message_and_details() -> None:
    """An error has a reason and details for programs, and a message for people."""
    error = errors.NotFoundError("no such job", reason="JOB_NOT_FOUND", details={"job_id": "x"})
    assert (error.reason, error.message, error.details) == (
        "JOB_NOT_FOUND",
        "no such job",
        {"job_id": "x"},
    )
    assert str(error) == "no such job"


def test_reason_defaults_to_the_code() -> None:
    """The reason of an error defaults to its code."""
    assert errors.UnavailableError("later").reason == "UNAVAILABLE"


def test_no_error_shadows_a_builtin() -> None:
    """No class of the tree has the name of a builtin, and each name ends in Error."""
    names = [HoldfastError.__name__, *(error_class(code).__name__ for code in Code)]
    assert [name for name in names if hasattr(builtins, name)] == []
    assert all(name.endswith("Error") for name in names)


def test_errors_need_no_grpc(root: Path) -> None:
    """The error module does not import grpc, so that the core can use it."""
    text = (root / "src/holdfast/errors.py").read_text()
    assert re.findall(r"^(?:import|from) (grpc\S*)", text, re.MULTILINE) == []
