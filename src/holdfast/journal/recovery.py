"""Recovery of the end of a journal: automatic if it is torn, by the repair command if it is damaged.

Invariants:
- Before bytes are cut, a copy of them is durable; the remaining frames are durable before new ones are written.
- Each step may be repeated, so a crash in any of them is harmless: the next survey finds either the tail or the clean
  end, and the copy has the same name and contents each time.
- A frame that is followed by a valid frame is never cut.
"""

import re
from dataclasses import dataclass, replace

from holdfast.journal.disk import Disk
from holdfast.journal.errors import JournalDamagedError
from holdfast.journal.index import stray_indexes
from holdfast.journal.manifest import Manifest, read_manifest, write_manifest
from holdfast.journal.segment import read_header, segment_names
from holdfast.journal.survey import Survey, refuse_damage, survey, survey_with
from holdfast.journal.tail import TailVerdict
from holdfast.journal.whole_write import TEMPORARY_SUFFIX, replace_file, write_fully

#: Temporary files of the journal; other files in the directory are not removed.
_LEFT_BEHIND = re.compile(
    rf"(MANIFEST|next\.seg|\d{{20}}-\d{{10}}\.seg|snapshot-\d{{20}}\.snap|torn-\d+-\d+\.bak){re.escape(TEMPORARY_SUFFIX)}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """The result of a repair; `copy_name` is "" if nothing was cut."""

    end_position: int
    copy_name: str
    bytes_cut: int
    is_manifest_rebuilt: bool
    # The number of positions that were known to be durable and are lost.
    positions_lost: int

    @property
    def is_changed(self) -> bool:
        return bool(self.copy_name) or self.is_manifest_rebuilt


def recover(disk: Disk, *, verify_after: int = 0) -> Survey:
    """Survey, refuse damage, cut a torn tail, and remove the temporary files of interrupted steps."""
    found = survey(disk, verify_after=verify_after)
    refuse_damage(found)
    settle(disk, found)
    names = disk.names()
    for name in [*filter(_LEFT_BEHIND.fullmatch, names), *stray_indexes(names)]:
        disk.remove(name)
    return found


def settle(disk: Disk, found: Survey) -> str:
    """Cut the bytes after the last good frame, keeping a copy unless they are zeros; return the copy's name.

    When this returns the good frames are durable. A readable frame need not be: the writer may have crashed before
    the sync of the last frame, or after it failed; then the kernel considers the pages clean and never writes them.
    So the last frame is written and synced again; the frames before it were durable before it was written.
    """
    tail = found.tail
    if tail is None or (found.is_end_marked and found.sizes[-1] == tail.offset):
        return ""
    file = disk.open(found.newest)
    try:
        copy_name = ""
        if tail.verdict is not TailVerdict.CLEAN:
            copy_name = f"torn-{found.end_position + 1}-{found.headers[-1].epoch}.bak"
            replace_file(disk, copy_name, file.read_at(tail.offset, tail.content_end - tail.offset))
        if last_frame := file.read_at(found.last_offset, tail.offset - found.last_offset):
            write_fully(file, found.last_offset, last_frame)
        file.truncate(tail.offset)
        file.sync()
    finally:
        file.close()
    return copy_name


def repair(disk: Disk) -> RepairReport:
    """Cut the damaged last frame, keeping a copy, and rebuild a manifest that is missing or damaged.

    This is the only function that discards data known to have been durable, so only a user starts it. For damage
    anywhere else it raises JournalDamagedError and changes nothing.
    """
    disk.lock()
    try:
        manifest, is_rebuilt = _manifest_or_rebuilt(disk)
        found = survey_with(disk, manifest)
        _refuse_the_irreparable(found)
        copy_name = settle(disk, found)
        lost = max(0, manifest.mark_position - found.end_position) if manifest else 0
        if manifest and (lost or is_rebuilt):
            at_end = replace(manifest, mark_position=found.end_position, mark_checksum=found.end_checksum)
            write_manifest(disk, at_end)
    finally:
        disk.unlock()
    tail = found.tail
    return RepairReport(
        end_position=found.end_position,
        copy_name=copy_name,
        bytes_cut=tail.content_end - tail.offset if tail else 0,
        is_manifest_rebuilt=is_rebuilt,
        positions_lost=lost,
    )


def _refuse_the_irreparable(found: Survey) -> None:
    try:
        refuse_damage(found)
    except JournalDamagedError as error:
        if not error.is_repairable:
            raise


def _manifest_or_rebuilt(disk: Disk) -> tuple[Manifest | None, bool]:
    """Return the manifest, rebuilt from the newest segment if necessary, and whether it was rebuilt."""
    names = segment_names(disk.names())
    try:
        manifest = read_manifest(disk)
    except JournalDamagedError:
        if not names:
            raise
        manifest = None
    if manifest is not None or not names:
        return manifest, False
    file = disk.open(names[-1])
    try:
        header = read_header(file, names[-1])
    finally:
        file.close()
    rebuilt = Manifest(
        cluster_id=header.cluster_id,
        newest_first_position=header.first_position,
        epoch=header.epoch,
        mark_position=header.first_position - 1,
        mark_checksum=header.link,
    )
    return rebuilt, True
