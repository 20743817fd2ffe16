"""`holdfast stats`: the numbers of the system, and the capabilities of the backend."""

from typing import TYPE_CHECKING

from holdfast.cli.connection import ALL_BYTES, Connect, ask
from holdfast.cli.text import Json, as_time, print_fields, print_json
from holdfast.core.lifecycle import State
from holdfast.errors import UnimplementedError

if TYPE_CHECKING:
    from holdfast.client.link import Client
    from holdfast.core.capabilities import Capabilities
    from holdfast.ports import Stats


def stats(connect: Connect = None, as_json: Json = False) -> None:
    """Show the number of jobs by state, the workers, and the capabilities of the backend."""
    told, numbers = ask(connect, _asked)
    if as_json:
        import msgspec

        print_json({**(msgspec.to_builtins(numbers) if numbers is not None else {}), **_capabilities(told)})
        return
    print_fields((*(_numbers(numbers) if numbers is not None else ()), *_backend(told)))


async def _asked(client: "Client") -> "tuple[Capabilities | None, Stats | None]":
    """Returns the capabilities, None if the server is too old to declare them, and the stats, None if it has none."""
    from holdfast.core.capabilities import Capability

    try:
        told = await client.capabilities()
    except UnimplementedError:
        return None, await client.stats()
    return told, await client.stats() if told.has(Capability.ADMINISTRATION) else None


def _capabilities(told: "Capabilities | None") -> dict[str, object]:
    """Returns the fields of `/api/v1/capabilities`."""
    if told is None:
        return {}
    missing = {one.value: sentence for one, sentence in told.missing.items()}
    return {
        "backend": told.backend,
        "version": told.version,
        "capabilities": sorted(one.value for one in told.present),
        "missing": missing,
    }


def _numbers(numbers: "Stats") -> tuple[tuple[str, str], ...]:
    return (
        *((state.name.lower(), f"{numbers.states.get(state.name, 0):,}") for state in State),
        ("memory", _held(numbers)),
        ("workers", f"{numbers.workers} with {numbers.slots} slots, {numbers.leases} of them busy"),
        ("position", f"{numbers.position:,}" if numbers.position else ""),
        ("epoch", str(numbers.epoch or "")),
        ("cluster", numbers.cluster_id),
        ("time", as_time(numbers.now_ms)),
        *(("warning", text) for text in numbers.warnings),
    )


def _held(numbers: "Stats") -> str:
    """The memory of the jobs; without a limit if this command serves the directory itself."""
    if not numbers.bytes_held:
        return ""
    limit = f", limit {numbers.bytes_held_max:,}" if 0 < numbers.bytes_held_max < ALL_BYTES else ""
    return f"{numbers.bytes_held:,} bytes held by jobs{limit}"


def _backend(told: "Capabilities | None") -> tuple[tuple[str, str], ...]:
    from holdfast.core.capabilities import MEANINGS

    if told is None:
        return ()
    return (
        ("backend", f"{told.backend} {told.version}".strip()),
        ("capabilities", ", ".join(sorted(one.value for one in told.present))),
        *((f"no {one.value}", MEANINGS[one]) for one in told.missing),
    )
