"""The language of the scenarios: commands, `----`, and their trace.

A file is a list of blocks, separated by blank lines. A block that starts with `#` is prose. In every other block
the lines above `----` are commands and the lines below are the trace: one line for each event (`>`), each
reply (`<`), and each job whose state, token or budget changed (`=`). Options are written `name=value`.

    config aging_ms=1000                     before anything else
    clock +500 | wall +500 | serve +500      both clocks, the wall clock alone, served time alone
    submit a b type=echo queue=q priority=9 attempts=3 losses=1 backoff=fixed:100 key=k unique=u payload=x delay=50
    mode q PAUSED reason=why
    purge a b reason=why
    lease w1 2 for=1000 routes=echo queues=q
    heartbeat w1 for=1000 held=1,2 grace=50
    report w1 a 1 DONE output=x reason=why final=1
    note w1 a 1 at=500 message=half lines=one,two
    cancel a reason=why
    revoke w1 disconnected
    expire
    evict age=0 jobs=0 bytes=0 failed=0      limits; failed is the age limit of failed jobs
    restart log | restart image              a new process; served time begins at 0
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from holdfast.core import commands, lifecycle
from holdfast.core.model import (
    EXPONENTIAL,
    FIXED,
    QUADRATIC,
    BackoffRule,
    Extra,
    JobRecord,
    NewJob,
    Note,
    QueueMode,
    Result,
    Template,
)
from tests.unit.core.ledger_driver import LedgerDriver

Options = dict[str, str]
_BACKOFFS = {"fixed": FIXED, "exponential": EXPONENTIAL, "quadratic": QUADRATIC}
_FOR_EVER = str(1 << 40)


def run(text: str) -> str:
    """The same scenario with the trace that its commands produce now."""
    player = Player()
    return "\n\n".join(player.play(block) for block in text.strip().split("\n\n")) + "\n"


class Player:
    """Plays blocks one after the other on one desk."""

    def __init__(self) -> None:
        self._driver = LedgerDriver()
        self._shown: dict[str, str] = {}
        self._verbs: dict[str, Callable[[list[str], Options], object]] = {
            "config": self._config,
            "clock": lambda words, _: self._pass(int(words[0]), int(words[0])),
            "wall": lambda words, _: self._pass(int(words[0]), 0),
            "serve": lambda words, _: self._pass(0, int(words[0])),
            "submit": self._submit,
            "lease": self._lease,
            "heartbeat": self._heartbeat,
            "report": self._report,
            "note": self._note,
            "mode": self._mode,
            "purge": lambda words, options: self._do(commands.CancelQueued(words, options.get("reason", ""))),
            "cancel": lambda words, options: self._do(commands.Cancel(words[0], options.get("reason", ""))),
            "revoke": lambda words, _: self._do(commands.Revoke(words[0], words[1], words[1] != "released")),
            "expire": lambda _, __: self._do(commands.Expire()),
            "evict": self._evict,
            "restart": self._restart,
        }

    def play(self, block: str) -> str:
        if block.startswith("#"):
            return block
        above, _, _ = block.partition("\n----")
        trace = [line for command in above.splitlines() for line in self._line(command)]
        return "\n".join([above, "----", *trace])

    def _line(self, line: str) -> list[str]:
        verb, *rest = line.split()
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        position = len(self._driver.bodies)
        reply = self._verbs[verb]([word for word in rest if "=" not in word], options)
        self._driver.check()
        events = [f"> {show_event(body)}" for body in self._driver.bodies[position:]]
        replies = [] if reply is None else [f"< {show(reply)}"]
        return [*events, *replies, *self._changes()]

    def _changes(self) -> list[str]:
        now = {job_id: show_job(job) for job_id, job in self._driver.ledger.state.jobs.items()}
        changed = [f"= {job_id} {text}" for job_id, text in now.items() if self._shown.get(job_id) != text]
        gone = [f"= {job_id} is forgotten" for job_id in self._shown if job_id not in now]
        self._shown = now
        return [*changed, *gone]

    # -- verbs

    def _do(self, command: commands.AnyCommand) -> object:
        reply: object = self._driver.do(command)
        return reply

    def _config(self, _: list[str], options: Options) -> None:
        self._driver = LedgerDriver(**{name: int(value) for name, value in options.items()})

    def _pass(self, log_ms: int, served_ms: int) -> None:
        self._driver.log_ms += log_ms
        self._driver.served_ms += served_ms

    def _submit(self, words: list[str], options: Options) -> object:
        due_ms = self._driver.log_ms + int(options["delay"]) if "delay" in options else 0
        key, unique = options.get("key", ""), options.get("unique", "")
        extra = Extra(request_id=key, unique_key=unique) if key or unique else None
        payload = options.get("payload", "").encode()
        jobs = [NewJob(job_id, 0, payload, due_ms, extra) for job_id in words]
        return self._do(commands.Submit([_template(options)], jobs))

    def _lease(self, words: list[str], options: Options) -> object:
        worker, count = words
        routes, queues = _names(options.get("routes", "echo")), _names(options.get("queues", ""))
        return self._do(commands.GrantLeases(worker, routes, queues, int(count), int(options.get("for", "1000"))))

    def _heartbeat(self, words: list[str], options: Options) -> object:
        held = frozenset(map(int, _names(options["held"]))) if "held" in options else None
        lease_ms, grace_ms = int(options.get("for", "1000")), int(options.get("grace", "0"))
        return self._do(commands.Extend(words[0], lease_ms, held, grace_ms))

    def _report(self, words: list[str], options: Options) -> object:
        worker, job_id, token, state = words
        row = commands.ReportRow(
            job_id,
            int(token),
            lifecycle.State[state],
            options.get("output", "").encode(),
            failure_reason=options.get("reason", ""),
            is_retryable="final" not in options,
        )
        return self._do(commands.Report(worker, [row]))

    def _note(self, words: list[str], options: Options) -> object:
        worker, job_id, token = words
        lines = tuple(line for line in options.get("lines", "").split(",") if line)
        note = Note(job_id, int(token), int(options.get("at", "-1")), options.get("message", ""), lines)
        return self._do(commands.TakeNotes(worker, [note]))

    def _mode(self, words: list[str], options: Options) -> object:
        queue, mode = words
        return self._do(commands.SetQueueMode(queue, QueueMode[mode], options.get("reason", "")))

    def _evict(self, _: list[str], options: Options) -> object:
        limits = (int(options.get(name, _FOR_EVER)) for name in ("age", "jobs", "bytes", "failed"))
        return self._do(commands.Evict(*limits))

    def _restart(self, words: list[str], _: Options) -> None:
        driver = self._driver
        driver.restart(driver.reloaded() if words == ["image"] else driver.replayed())


def _template(options: Options) -> Template:
    kind, _, base_ms = options.get("backoff", "fixed:0").partition(":")
    return Template(
        options.get("type", "echo"),
        options.get("queue", "default"),
        int(options.get("priority", "5")),
        int(options.get("attempts", "1")),
        int(options.get("losses", "3")),
        backoff=BackoffRule(_BACKOFFS[kind], int(base_ms)),
    )


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split(",")) - {""}


# -- formatting

_EVENTS = ["", "started", "created", "granted", "extended", "revoked", "reported", "cancel", "evicted"]
_EVENTS += ["mode", "purged", "noted", "schedule set", "schedule deleted", "schedule paused", "ticked", "retired"]


def show_event(body: bytes) -> str:
    """An event as it is in the journal: its numbers and words, without field names, which code could change.

    Trailing flags that are not set are omitted.
    """
    ((tag, at_ms, *fields),) = msgspec.msgpack.decode(body)
    while fields and fields[-1] is False:
        fields.pop()
    return f"{_EVENTS[tag]} at {at_ms}: {' '.join(map(show, fields))}"


def show_job(job: JobRecord) -> str:
    numbers = ("token", "failures", "losses", "not_before_ms")
    words = [lifecycle.name(job.state), f"attempts={job.attempts}"]
    words += [f"{name}={getattr(job, name)}" for name in numbers if getattr(job, name)]
    words += ["cancel_requested"] if job.cancel_requested else []
    words += [f"result={show(job.result)}"] if job.result else []
    return " ".join(words)


def show(value: object) -> str:
    """Any value on one line; empty fields are omitted, and sets are sorted."""
    if isinstance(value, msgspec.Struct) and type(value) not in _SHOWN:
        return _show_struct(value)
    return _SHOWN.get(type(value), str)(value)


def _show_struct(value: msgspec.Struct) -> str:
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, Result):
        fields["state"] = lifecycle.State(value.state)
    words = [f"{name}={show(field)}" for name, field in fields.items() if field]
    return f"{type(value).__name__}({', '.join(words)})"


def _show_list(value: Iterable[object]) -> str:
    return f"[{' '.join(map(show, value))}]"


_SHOWN: dict[type, Callable[[Any], str]] = {
    commands.GrantedLease: lambda lease: f"{lease.job_id}#{lease.token}/{lease.attempt}",
    lifecycle.State: lambda state: str(state.name),
    bytes: lambda data: repr(data.decode()),
    str: lambda text: text if text.isidentifier() else repr(text),
    dict: lambda items: "{" + ", ".join(f"{key}: {show(item)}" for key, item in items.items()) + "}",
    frozenset: lambda items: "{" + ", ".join(sorted(map(show, items))) + "}",
    list: _show_list,
    tuple: _show_list,
}
