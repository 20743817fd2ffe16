"""Lines between roles of a test's own process on which nothing is late, unless a test says so."""

from holdfast.backends.pipeline.http import Lines

#: Longer than a busy machine stands still: roles that are away refuse at once, and are not waited for.
PATIENCE_S = 30.0


class PatientLines(Lines):
    """What a role would take for the silence of another is here that of the machine, and waited for."""

    async def _call(
        self, method: str, address: str, path: str, body: bytes | None, kind: str, deadline_s: float
    ) -> bytes:
        return await super()._call(method, address, path, body, kind, max(deadline_s, PATIENCE_S))
