"""`holdfast journal`: what can be done with a journal while no server has it open."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.errors import NotFoundError
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.recovery import repair as repair_journal

app = typer.Typer(help="Look after a journal that no server has open.", no_args_is_help=True)


@app.callback()
def journal() -> None:
    """Groups the commands."""


@app.command()
def repair(directory: Annotated[Path, typer.Argument(help="the data directory")]) -> None:
    """Cut a damaged last frame, keeping a copy. Only what a damaged end needs; refuses everything else."""
    if not directory.is_dir():
        raise NotFoundError(f"there is no directory {str(directory)!r}")
    print(repair_journal(OsDisk(directory)))
