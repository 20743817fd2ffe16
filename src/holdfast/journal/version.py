"""The format's version, and the sixteen bytes that open every file of the journal.

Invariant: the preamble (magic, version, checksum of both) keeps this layout in every version, for ever.
That is what lets any version of Holdfast tell "newer than me" from "damaged".

TO CHANGE THE FORMAT
1. Raise FORMAT_VERSION and extend the table of versions in docs/internals/journal-format.md.
2. Keep the decoder of the version before; choose by the preamble's version, file by file. Directories of
   mixed versions are normal: old segments stay, a new version begins with a new segment.
3. Never give an existing field another meaning. What was zero padding in version n may be a field in n + 1.
4. Add tests/golden/journal/v<n>/ with its generator; the files of every older version stay as they are, and
   today's reader must read all of them.
5. Re-check the table of what each kind of damage leads to; tests/unit/journal/test_bit_flips.py states it.
A change of what the digest means is a change of format too: raise DIGEST_VERSION with it. A Holdfast that cannot
compute a digest must not open the files, for it would replay without noticing a difference and pass over snapshots.
"""

import struct
import zlib

from holdfast.journal.errors import JournalVersionError

FORMAT_VERSION = 2
#: The version of the digests that files of this format version carry.
DIGEST_VERSION = 2

_PREAMBLE = struct.Struct(">8sII")
PREAMBLE_BYTES = _PREAMBLE.size
_CHECKED_BYTES = PREAMBLE_BYTES - 4


def preamble(magic: bytes, version: int = FORMAT_VERSION) -> bytes:
    """The first bytes of a file of the kind that `magic` names."""
    head = _PREAMBLE.pack(magic, version, 0)[:_CHECKED_BYTES]
    return head + zlib.crc32(head).to_bytes(4, "big")


def preamble_problem(data: bytes, magic: bytes, name: str) -> str:
    """What is wrong with the preamble, or "" if nothing is; a newer version is an error of its own."""
    if len(data) < PREAMBLE_BYTES:
        return f"the file ends after {len(data)} bytes, inside its first {PREAMBLE_BYTES}"
    found_magic, version, checksum = _PREAMBLE.unpack_from(data)
    if zlib.crc32(data[:_CHECKED_BYTES]) != checksum:
        return "the checksum of its first bytes does not match"
    if found_magic != magic:
        return f"it is of another kind: expected it to begin with {magic!r}, got {found_magic!r}"
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
    """The format version in a preamble that has no problem."""
    version: int = _PREAMBLE.unpack_from(data)[1]
    return version
