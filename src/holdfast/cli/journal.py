"""`holdfast journal`: what can be done with a journal while no server has it open."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.errors import NotFoundError
from holdfast.journal.manifest import MANIFEST_NAME
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.recovery import RepairReport
from holdfast.journal.recovery import repair as repair_journal
from holdfast.journal.segment import segment_names

app = typer.Typer(help="Look after a journal that no server has open.", no_args_is_help=True)


@app.callback()
def journal() -> None:
    """Groups the commands."""


@app.command()
def repair(directory: Annotated[Path, typer.Argument(help="the data directory")]) -> None:
    """Cut a damaged last frame, keeping a copy. Only what a damaged end needs; refuses everything else."""
    if not directory.is_dir():
        raise NotFoundError(f"there is no directory {str(directory)!r}")
    names = [path.name for path in directory.iterdir()]
    if not (segment_names(names) or MANIFEST_NAME in names):
        raise NotFoundError(f"there is no journal in {str(directory)!r}")
    print(_sentence(repair_journal(OsDisk(directory))))


def _sentence(report: RepairReport) -> str:
    """What a repair did, for people."""
    parts = []
    if report.copy_name:
        parts.append(f"cut {report.bytes_cut} bytes from the end and kept a copy in {report.copy_name}")
    if report.is_manifest_rebuilt:
        parts.append("rebuilt the manifest")
    if report.positions_lost:
        parts.append(f"lost {report.positions_lost} events that had been durable")
    return f"{'; '.join(parts) or 'nothing to repair'}; the journal ends at position {report.end_position}"
