"""Expected exits: processes that faults kill. The exit of any other process is a finding."""


class ExpectedExits:
    """Faults register the processes that they kill; an observer of an exit checks whether it was registered."""

    def __init__(self) -> None:
        self._expected: set[int] = set()
        self.strange: list[str] = []

    def expect(self, pid: int) -> None:
        """Registers a process that is about to be killed."""
        self._expected.add(pid)

    def is_expected(self, pid: int) -> bool:
        """Whether the exit of this process was registered."""
        return pid in self._expected

    def ended(self, name: str, pid: int, status: int, words: str = "") -> None:
        """Records an exit that the arena did not request; unless it was expected, it is a finding."""
        if not self.is_expected(pid):
            self.strange.append(f"{name} ended by itself with {status}{words and f': {words}'}")
