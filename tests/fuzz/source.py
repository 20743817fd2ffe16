"""Choices read from bytes, so that an engine that generates bytes also generates structured inputs.

Equal bytes give equal choices. After the end of the bytes every choice is the first one, so that each input ends.
"""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_BITS_32, _BITS_63, _BITS_64 = 1 << 32, 1 << 63, 1 << 64
#: Integers at the edges of common ranges.
INTEGERS = (
    *(0, 1, 2, 3, 7, 10, 59, 60, 100, 127, 128, 255, 256, 999, 1_000, 1_001, 65_535, 65_536, 86_400_000),
    *(_BITS_32 // 2 - 1, _BITS_32 // 2, _BITS_32 - 1, _BITS_32, _BITS_63 - 1, _BITS_63, _BITS_64 - 1),
    *(-1, -2, -1_000, -_BITS_32 // 2, -_BITS_63, 1_700_000_000_000, 4_102_444_800_000, 253_402_300_800_000),
)
#: Texts that programs often handle wrongly.
TEXTS = (
    *("", "a", "default", "echo", "sim", "UTC", "Europe/Paris", "* * * * *", "0 0 29 2 *", "null", "true", "1e999"),
    *("../../etc/passwd", "a/b", ".", "..", "<script>", "a\r\nX-A: b", "\0", "a\0b", "\u202eabc", "\ufeff", "é", "😀"),
    *(
        "x" * 127,
        "x" * 128,
        "x" * 129,
        "x" * 256,
        "x" * 257,
        "x" * 1_025,
        "\ud800",
        "%00",
        "%ff",
        "-1",
        "NaN",
        " ",
        "٣",
    ),
    *("1" * 20, "1" * 4_301, "0x10", "1_0", "'; DROP TABLE jobs; --", "${jndi:ldap://a}", "{}", "[]", "=", ",", "a=b"),
)


class Source:
    """A position in the bytes of an input."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_over(self) -> bool:
        """Whether every choice is the first one from here on."""
        return self._at >= len(self._data)

    def take(self, size: int) -> bytes:
        """The next `size` bytes, or fewer at the end."""
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def rest(self) -> bytes:
        """All remaining bytes."""
        return self.take(len(self._data))

    def below(self, bound: int) -> int:
        """A number from 0 on, below the bound."""
        size = ((bound - 1).bit_length() + 7) // 8
        return int.from_bytes(self.take(size), "big") % bound if size else 0

    def pick(self, values: Sequence[T]) -> T:
        """One of several."""
        return values[self.below(len(values))]

    def is_one_in(self, count: int) -> bool:
        """True for one of `count` choices, and never at the end."""
        return self.below(count) == count - 1

    def integer(self) -> int:
        """One of `INTEGERS`, a neighbour of one, or any number."""
        match self.below(4):
            case 0 | 1:
                return self.pick(INTEGERS)
            case 2:
                return self.pick(INTEGERS) + self.below(3) - 1
            case _:
                return int.from_bytes(self.take(self.below(9)), "big", signed=True)

    def text(self, more: Sequence[str] = ()) -> str:
        """One of `TEXTS`, one of `more`, or the next bytes as text."""
        match self.below(4):
            case 0 | 1 if more:
                return self.pick(more)
            case 0 | 1 | 2:
                return self.pick(TEXTS)
            case _:
                return self.take(self.below(40)).decode("utf-8", "replace")
