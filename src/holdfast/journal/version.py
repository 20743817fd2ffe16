"""The format version, and the preamble: the first sixteen bytes of every file of the journal.

Invariant: the preamble (magic, version, checksum of both) has the same layout in every version. So every version of
Holdfast can distinguish a newer format from damage.

TO CHANGE THE FORMAT
1. Raise FORMAT_VERSION and extend the table of versions in docs/internals/journal-format.md.
2. Keep the decoder of the version before; choose by the preamble's version, file by file. Directories of
   mixed versions are normal: old segments stay, a new version begins with a new segment.
3. Never change the meaning of an existing field. Zero padding of version n may become a field in version n + 1.
4. Add tests/golden/journal/v<n>/ with its generator; the files of every older version stay unchanged, and the
   current reader must read all of them.
5. Re-check the table of damage and its consequences; tests/unit/journal/test_bit_flips.py tests it.
A change of the digest's definition is a change of format too: raise DIGEST_VERSION as well. A Holdfast that cannot
compute a digest must not open the files: its replay would not detect differences, and it would ignore snapshots.
"""

import struct
import zlib

from holdfast.journal.errors import JournalVersionError

FORMAT_VERSION = 2
#: The version of the digests in files of this format version.
DIGEST_VERSION = 2

_PREAMBLE = struct.Struct(">8sII")
PREAMBLE_BYTES = _PREAMBLE.size
_CHECKED_BYTES = PREAMBLE_BYTES - 4


def preamble(magic: bytes, version: int = FORMAT_VERSION) -> bytes:
    """Return the first bytes of a file of the kind that `magic` identifies."""
    head = _PREAMBLE.pack(magic, version, 0)[:_CHECKED_BYTES]
    return head + zlib.crc32(head).to_bytes(4, "big")


def preamble_problem(data: bytes, magic: bytes, name: str) -> str:
    """Return the problem of the preamble, or "" if there is none; raise JournalVersionError for an unknown version."""
    if len(data) < PREAMBLE_BYTES:
        return f"the file ends after {len(data)} bytes, inside its first {PREAMBLE_BYTES}"
    found_magic, version, checksum = _PREAMBLE.unpack_from(data)
    if zlib.crc32(data[:_CHECKED_BYTES]) != checksum:
        return "the checksum of its first bytes does not match"
    if found_magic != magic:
        return f"it is a file of another kind: it must begin with {magic!r}, got {found_magic!r}"
    if not 1 <= version <= FORMAT_VERSION:
        raise JournalVersionError(
            f"journal file {name!r} has format version {version}; this Holdfast reads versions 1 to"
            f" {FORMAT_VERSION}. Nothing was changed; run the Holdfast that wrote it, or a newer one.",
            reason="JOURNAL_VERSION",
        )
    return ""


def check_digest_version(version: int, name: str) -> None:
    """Raise JournalVersionError for digests that this Holdfast cannot compute."""
    if not 1 <= version <= DIGEST_VERSION:
        raise JournalVersionError(
            f"journal file {name!r} has digest version {version}; this Holdfast knows versions 1 to {DIGEST_VERSION}."
            " Nothing was changed; run the Holdfast that wrote it, or a newer one.",
            reason="JOURNAL_VERSION",
        )


def version_of(data: bytes) -> int:
    """Return the format version of a valid preamble."""
    version: int = _PREAMBLE.unpack_from(data)[1]
    return version
