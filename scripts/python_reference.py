"""The SDK in docs/reference.md, generated from its signatures and docstrings."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

import holdfast
from holdfast import testing
from holdfast.sdk.worker import AppWorker
from holdfast.testing import plugin

#: Classes whose methods users call, by the name of an object in examples.
_CALLED: Mapping[str, type] = {
    "app": holdfast.Holdfast,
    "function": holdfast.JobFunction,
    "job": holdfast.Job,
    "current()": holdfast.JobContext,
    "app.worker()": AppWorker,
    "Backoff": holdfast.Backoff,
}
#: Members for other parts of Holdfast, not for its users.
_INNER = frozenset(
    {"connection", "handlers", "work_api", "declared_schedules", "info", "plan", "rule"}
    | {"has_said", "take_note", "add_note"}
)


def python() -> list[str]:
    """Returns every public name with its description."""
    return [
        "## In Python",
        "",
        "Names for `from holdfast import ...`. The [guide](guide.md) explains them by topic; see also `help(name)`.",
        "",
        *(line for name, kind in _CALLED.items() for line in _methods(name, kind)),
        *_values(),
        *_errors(),
        *_testing(),
    ]


def _methods(name: str, kind: type) -> Iterator[str]:
    yield from (f"### `{kind.__name__}`", "", _first(kind), "", "| call | awaited | what it does |", "|---|---|---|")
    if kind is holdfast.Holdfast:
        yield f"| `app = Holdfast{_parameters(kind)}` |  | {_all(kind.__init__)} |"
    if kind is holdfast.Job:
        yield "| `job.id` |  | The job's id; it never changes. |"
        yield "| `job.is_existing` |  | Whether the submit found this job by a key, instead of creating it. |"
        yield "| `job.seen` |  | The `JobView` that `get` or `find` has read; else None. |"
    parts = [part for part in kind.__mro__ if part.__module__.startswith("holdfast.")]
    members = [one for part in parts for one in vars(part) if not one.startswith("_") and one not in _INNER]
    for member in members:
        twin = f"a{member}"
        if member[:1] == "a" and member[1:] in members:
            continue
        found = inspect.getattr_static(kind, member)
        if isinstance(found, property) or inspect.isroutine(getattr(kind, member)):
            call = member + ("" if isinstance(found, property) else _parameters(getattr(kind, member)))
            yield f"| `{name}.{call}` | {f'`{twin}`' if twin in members else ''} | {_all(found)} |"
    yield ""


def _parameters(function: Any) -> str:  # noqa: ANN401 - a function, or a class
    """Returns the parameters with their defaults, without annotations; docstrings describe them."""
    signature = inspect.signature(function)
    kept = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    shown = [one for one in kept if one.name not in {"self", "clock"}]
    return str(signature.replace(parameters=shown, return_annotation=inspect.Signature.empty))


def _values() -> list[str]:
    kinds: list[type[msgspec.Struct]] = [holdfast.JobView, holdfast.Progress]
    rows = [
        f"| `{kind.__name__}` | {_first(kind)} | {', '.join(f'`{name}`' for name in _fields(kind))} |" for kind in kinds
    ]
    states = ", ".join(f"`{state.name}`" for state in holdfast.State)
    return [
        "### Values",
        "",
        "| name | meaning | members |",
        "|---|---|---|",
        *rows,
        f"| `State` | {_first(holdfast.State)} | {states} |",
        "",
    ]


def _fields(kind: type[msgspec.Struct]) -> list[str]:
    properties = [name for name, value in vars(kind).items() if isinstance(value, property)]
    return [*kind.__struct_fields__, *properties]


def _errors() -> list[str]:
    kinds = [value for name in holdfast.__all__ if inspect.isclass(value := getattr(holdfast, name))]
    raised = [kind for kind in kinds if issubclass(kind, Exception)]
    rows = [f"| `{kind.__name__}` | {_first(kind)} |" for kind in raised]
    return ["### Errors", "", "| name | when |", "|---|---|", *rows, ""]


def _testing() -> list[str]:
    found = {name: getattr(testing, name) for name in sorted(testing.__all__, key=len)}
    rows = [f"| `{name}{_parameters(value)}` | {_all(value)} |" for name, value in found.items()]
    fixtures = " ".join(_line(paragraph) for paragraph in (inspect.getdoc(plugin) or "").split("\n\n"))
    return ["### `holdfast.testing`", "", fixtures, "", "| name | what it does |", "|---|---|", *rows, ""]


def _first(described: Any) -> str:  # noqa: ANN401 - any object with a docstring
    """Returns the first paragraph of the docstring, as a line."""
    return _line((inspect.getdoc(described) or "").split("\n\n")[0])


def _all(described: Any) -> str:  # noqa: ANN401 - any object with a docstring
    """Returns the docstring, as a cell of a table."""
    return _line(inspect.getdoc(described) or "")


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
