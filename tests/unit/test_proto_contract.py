"""The frozen contracts, compared with tables that should never change.

`tests/unit/contracts/taskqueue_public.txt` and `taskqueue_internal.txt` hold the frozen parts;
`taskqueue_internal_additions.txt` holds the additions to the internal contract.
"""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import (
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
    FileDescriptor,
    ServiceDescriptor,
)

import holdfast.proto
from holdfast.proto import holdfast_pb2, taskqueue_internal_pb2, taskqueue_public_pb2

CONTRACTS = Path(__file__).parent / "contracts"
ADDITIONS_FROM = 100
ADDED_TYPES = frozenset(
    {"JobOptions", "BackoffKind", "RetryBackoff", "RunningJob", "RunningJobs", "Spends", "Wanted", "JobSearch"}
)

_TYPE_NAMES = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}


def type_of(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"map<{type_of(key)}, {type_of(value)}>"
    named = field.message_type or field.enum_type
    name = named.full_name if named is not None else _TYPE_NAMES[field.type]
    if field.is_repeated:
        return f"repeated {name}"
    is_optional = field.containing_oneof is not None and field.has_presence
    return f"optional {name}" if is_optional else name


def field_lines(message: Descriptor, keep: Callable[[FieldDescriptor], bool]) -> Iterator[str]:
    for field in message.fields:
        if keep(field):
            yield f"  {field.number} {field.name} {type_of(field)}"


def service_lines(service: ServiceDescriptor) -> Iterator[str]:
    yield f"service {service.full_name}"
    for method in service.methods:
        source = f"stream {method.input_type.name}" if method.client_streaming else method.input_type.name
        target = f"stream {method.output_type.name}" if method.server_streaming else method.output_type.name
        yield f"  {method.name} {source} -> {target}"


def enum_lines(enum: EnumDescriptor) -> Iterator[str]:
    yield f"enum {enum.full_name}"
    for value in enum.values:
        yield f"  {value.number} {value.name}"


def describe(file: FileDescriptor, *, without: frozenset[str] = frozenset()) -> str:
    """Describes every service, enum and message of a file as text, with the fields below the additions."""
    lines: list[str] = []
    for service in file.services_by_name.values():
        lines += service_lines(service)
    for enum in file.enum_types_by_name.values():
        if enum.name not in without:
            lines += enum_lines(enum)
    for message in file.message_types_by_name.values():
        if message.name not in without:
            lines.append(f"message {message.full_name}")
            lines += field_lines(message, lambda field: field.number < ADDITIONS_FROM)
    return "\n".join(lines) + "\n"


def describe_additions(file: FileDescriptor) -> str:
    """Describes the added types, and the fields that were added to other types."""
    enums = [enum for name, enum in file.enum_types_by_name.items() if name in ADDED_TYPES]
    lines = [line for enum in enums for line in enum_lines(enum)]
    for message in file.message_types_by_name.values():
        is_added = message.name in ADDED_TYPES
        added = list(field_lines(message, lambda field: field.number >= ADDITIONS_FROM))
        if is_added:
            lines += [f"message {message.full_name}", *field_lines(message, lambda _: True)]
        elif added:
            lines += [f"fields of {message.full_name}", *added]
    return "\n".join(lines) + "\n"


def test_public_contract_equals_the_frozen_one() -> None:
    """The public contract has exactly the frozen services, methods, messages, fields and values."""
    frozen = (CONTRACTS / "taskqueue_public.txt").read_text()
    assert describe(taskqueue_public_pb2.DESCRIPTOR) == frozen
    assert describe_additions(taskqueue_public_pb2.DESCRIPTOR) == "\n"


def test_internal_contract_keeps_the_frozen_one() -> None:
    """Below the additions the internal contract is exactly the frozen one."""
    frozen = (CONTRACTS / "taskqueue_internal.txt").read_text()
    assert describe(taskqueue_internal_pb2.DESCRIPTOR, without=ADDED_TYPES) == frozen


def test_internal_additions_are_the_listed_ones() -> None:
    """The additions to the internal contract are exactly the listed ones."""
    listed = (CONTRACTS / "taskqueue_internal_additions.txt").read_text()
    remedy = "an addition needs a decision and a line in this list: see CONTRIBUTING.md, How to change a format"
    assert describe_additions(taskqueue_internal_pb2.DESCRIPTOR) == listed, remedy


def test_frozen_fields_are_numbered_in_order() -> None:
    """The fields of the frozen parts are numbered 1, 2, 3… in their order."""
    files = (taskqueue_public_pb2.DESCRIPTOR, taskqueue_internal_pb2.DESCRIPTOR)
    messages = [message for file in files for message in file.message_types_by_name.values()]
    for message in messages:
        numbers = [field.number for field in message.fields if field.number < ADDITIONS_FROM]
        assert numbers == list(range(1, len(numbers) + 1)), message.full_name


def test_every_addition_has_its_reason_in_the_proto(root: Path) -> None:
    """The comment at the top of the internal proto lists each added field once, with a reason."""
    text = (root / "proto/taskqueue_internal.proto").read_text()
    listed = re.findall(r"^//   (\w+)\.(\w+) +(\d+)  \S.{10,}$", text, re.MULTILINE)
    added = [
        (message.name, field.name, str(field.number))
        for message in taskqueue_internal_pb2.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
        if field.number >= ADDITIONS_FROM
    ]
    assert sorted(listed) == sorted(added)


def test_shared_types_are_defined_once() -> None:
    """No message or enum name of the public contract is defined again elsewhere."""
    public = taskqueue_public_pb2.DESCRIPTOR
    names = {*public.message_types_by_name, *public.enum_types_by_name}
    for file in (taskqueue_internal_pb2.DESCRIPTOR, holdfast_pb2.DESCRIPTOR):
        assert names.isdisjoint({*file.message_types_by_name, *file.enum_types_by_name})


def test_internal_contract_imports_only_the_public_one() -> None:
    """The public contract imports nothing, and the internal one imports only the public one."""
    assert [file.name for file in taskqueue_public_pb2.DESCRIPTOR.dependencies] == []
    assert [file.name for file in taskqueue_internal_pb2.DESCRIPTOR.dependencies] == ["taskqueue_public.proto"]


def test_kinds_of_backoff_have_the_same_numbers() -> None:
    """A kind of back-off has the same number in both packages."""
    assert taskqueue_internal_pb2.BackoffKind.items() == holdfast_pb2.BackoffKind.items()


def test_running_jobs_tell_absence_from_none() -> None:
    """A heartbeat without a list of running jobs differs from one with an empty list."""
    silent = taskqueue_internal_pb2.WorkerHeartbeatRequest(worker_id="w")
    idle = taskqueue_internal_pb2.WorkerHeartbeatRequest(worker_id="w", running=taskqueue_internal_pb2.RunningJobs())
    assert not silent.HasField("running")
    assert idle.HasField("running")
    assert silent.SerializeToString() != idle.SerializeToString()


def test_install_without_protobuf_is_told_of_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a base install, the import of the contracts says what to install."""
    for name in ("google", "google.protobuf"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'holdfast\[server\]'"):
        importlib.reload(holdfast.proto)
