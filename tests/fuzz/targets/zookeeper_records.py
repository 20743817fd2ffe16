"""Data of the nodes of an ensemble: records, results and introductions as they were written, or one known error."""

from holdfast.core.lifecycle import RUNNING
from holdfast.core.model import Extra, Result, Template
from holdfast.errors import InternalError
from holdfast.topologies.zookeeper.backend import records, worker_nodes
from holdfast.topologies.zookeeper.backend.transactions import ReadNode, Stat
from holdfast.topologies.zookeeper.backend.worker_nodes import WorkerNodeKind
from tests.fuzz.depth import deepened
from tests.fuzz.source import Source

_STAT = Stat(version=3, created_id=1, changed_id=77, changed_ms=2, owner=0, children=0)


def seeds() -> list[bytes]:
    """One of each kind."""
    record = records.Record("a", Template("echo"), 1, Extra("k", (("l", "v"),)), 3, state=RUNNING)
    written = (
        b"\0" + records.encode(record),
        b"\0" + records.encode(records.Record("b", Template("echo", "q", 9), 1)),
        b"\1" + records.encode(Result(1, 3, b"out", "summary", "why", 4)),
    )
    introduced = worker_nodes.kind_said(WorkerNodeKind(("echo",), ("q",), 4))
    later = [one[:2] + deepened(one[2:]) for one in written]
    return [*written, *later, b"\2" + introduced, b"\2" + deepened(introduced)]


def fuzz(data: bytes) -> None:
    """Decodes a node as one of the three kinds."""
    source = Source(data)
    kind = source.below(3)
    node = ReadNode(source.rest(), _STAT)
    try:
        if kind == 0:
            record = records.kept_of(node).record
            assert record.state != RUNNING or record.token, "a job runs without a token"
            assert records.kept_of(ReadNode(records.encode(record), _STAT)).record == record
            records.view_of(record)
        elif kind == 1:
            result = records.result_of(node)
            assert records.result_of(ReadNode(records.encode(result), _STAT)) == result
        else:
            said = worker_nodes.kind_in(node.data)
            assert worker_nodes.kind_in(worker_nodes.kind_said(said)) == said
    except InternalError as error:
        assert error.reason in {"RECORD_VERSION", "RECORD_DAMAGED"}
