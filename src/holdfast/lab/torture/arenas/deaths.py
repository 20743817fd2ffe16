"""Who was killed on purpose. A process that ends without that has ended by itself, which no fault explains."""


class Deaths:
    """Faults say whom they are about to kill; whoever sees an end asks whether it was said."""

    def __init__(self) -> None:
        self._expected: set[int] = set()
        self.strange: list[str] = []

    def expect(self, pid: int) -> None:
        """Somebody is about to kill this process."""
        self._expected.add(pid)

    def is_expected(self, pid: int) -> bool:
        """Whether somebody said so."""
        return pid in self._expected

    def ended(self, name: str, pid: int, status: int, words: str = "") -> None:
        """A process has ended that nobody asked to end."""
        if not self.is_expected(pid):
            self.strange.append(f"{name} ended by itself with {status}{words and f': {words}'}")
