"""The options of the command line as a plan, or a refusal that explains what is wrong."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from holdfast.errors import InvalidArgumentError
from holdfast_lab.compare.topologies import TOPOLOGIES
from holdfast_lab.compare.workloads import (
    METHODS,
    ComparisonPlan,
    Workload,
    custom_groups,
    default_groups,
    full_groups,
    quick_groups,
)

T = TypeVar("T")
_QUICK_COUNTED_JOBS = 100
_DURATION_S, _WARM_UP_S = 4.0, 1.0


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The options, as the user typed them."""

    topologies: str
    is_quick: bool = False
    is_full: bool = False
    workloads: str = ""
    concurrency: str = ""
    rate: str = ""
    job_ms: str = ""
    mix: str = ""
    duration_s: float | None = None
    warm_up_s: float | None = None
    fault_s: float | None = None


def plan_of(choice: Choice, *, runs: int, seed: int, clients: int) -> ComparisonPlan:
    """The plan; `InvalidArgumentError` for options that contradict each other or mean nothing."""
    names = _topologies(choice.topologies)
    if choice.is_quick + choice.is_full + bool(choice.workloads) > 1:
        raise InvalidArgumentError("expected one of --quick, --full and --workloads, got more than one")
    given = [option for option, value in _own(choice).items() if value not in {"", None}]
    if given and not choice.workloads:
        raise InvalidArgumentError(f"{given[0]} is for workloads of your own: name their kinds with --workloads")
    plan = ComparisonPlan(topologies=names, groups=_groups(choice), runs=runs, seed=seed, clients=clients)
    return msgspec.structs.replace(plan, counted_jobs=_QUICK_COUNTED_JOBS) if choice.is_quick else plan


def _own(choice: Choice) -> dict[str, str | float | None]:
    """The options of a custom workload."""
    return {
        "--concurrency": choice.concurrency,
        "--rate": choice.rate,
        "--job-ms": choice.job_ms,
        "--mix": choice.mix,
        "--duration": choice.duration_s,
        "--warm-up": choice.warm_up_s,
        "--fault": choice.fault_s,
    }


def _groups(choice: Choice) -> tuple[tuple[Workload, ...], ...]:
    if choice.is_quick:
        return quick_groups()
    if choice.is_full:
        return full_groups()
    if not choice.workloads:
        return default_groups()
    return custom_groups(
        kinds=tuple(_parts("--workloads", choice.workloads, str, "a kind of workload")),
        concurrencies=_concurrencies(choice),
        rates=tuple(_parts("--rate", choice.rate, _above_zero, "a number above 0")),
        job_durations_ms=tuple(_parts("--job-ms", choice.job_ms or "0", _natural, "whole and not below 0")),
        mix=_mix(choice.mix),
        duration_s=_DURATION_S if choice.duration_s is None else choice.duration_s,
        warm_up_s=_WARM_UP_S if choice.warm_up_s is None else choice.warm_up_s,
        fault_s=choice.fault_s or 0.0,
    )


def _concurrencies(choice: Choice) -> tuple[int, ...]:
    """The concurrencies; eight in flight if neither a number nor a rate is given."""
    usual = "" if choice.rate else "8"
    return tuple(_parts("--concurrency", choice.concurrency or usual, _positive, "whole and above 0"))


def _topologies(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    unknown = [name for name in names if name not in TOPOLOGIES]
    if unknown or not names or len(set(names)) < len(names):
        raise InvalidArgumentError(
            f"--topologies must be comma-separated, different ones of {', '.join(TOPOLOGIES)}, got {text!r}"
        )
    return names


def _mix(text: str) -> tuple[int, ...]:
    weights = tuple(_parts("--mix", text, _natural, "whole and not below 0"))
    if weights and (len(weights) != len(METHODS) or not sum(weights)):
        raise InvalidArgumentError(
            f"--mix must be the weights of submit, status, result, cancel and list, not all 0, got {text!r}"
        )
    return weights


def _parts(option: str, text: str, read: Callable[[str], T], expected: str) -> list[T]:
    try:
        return [read(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InvalidArgumentError(f"every part of {option} must be {expected}, got {text!r}") from None


def _natural(text: str) -> int:
    if (value := int(text)) < 0:
        raise ValueError(text)
    return value


def _positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise ValueError(text)
    return value


def _above_zero(text: str) -> float:
    if not 0 < (value := float(text)) < float("inf"):
        raise ValueError(text)
    return value
