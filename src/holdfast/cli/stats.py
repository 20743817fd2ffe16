"""`holdfast stats`: the whole system in numbers."""

from holdfast.cli.connecting import Connect, ask
from holdfast.cli.text import Json, as_time, print_fields, print_json
from holdfast.core.lifecycle import State


def stats(connect: Connect = None, as_json: Json = False) -> None:
    """Show how many jobs are in which state, and who works."""
    import msgspec

    numbers = ask(connect, lambda client: client.stats())
    if as_json:
        print_json(msgspec.to_builtins(numbers))
        return
    print_fields(
        (
            *((state.name.lower(), f"{numbers.states.get(state.name, 0):,}") for state in State),
            ("held", f"{numbers.bytes_held:,} bytes of payloads and outputs" if numbers.bytes_held else ""),
            ("workers", f"{numbers.workers} with {numbers.slots} slots, {numbers.leases} of them busy"),
            ("position", f"{numbers.position:,}" if numbers.position else ""),
            ("epoch", str(numbers.epoch or "")),
            ("cluster", numbers.cluster_id),
            ("time", as_time(numbers.now_ms)),
        )
    )
