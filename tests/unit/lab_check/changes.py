"""Changes of synthetic histories: one record replaced, dropped or added."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from holdfast_lab.check.history import History
from holdfast_lab.check.judge import judge_history
from holdfast_lab.check.verdict import Verdict
from holdfast_lab.history.records import Answered, Asked, Began, Ended, Lost, Record, Refused, Run

Test = Callable[[Record], bool]


class Changed:
    """A history that is being changed."""

    def __init__(self, run: Run, records: Iterable[Record]) -> None:
        self.run, self.records = run, list(records)

    def judge(self) -> Verdict:
        return judge_history(History(self.run, self.records))

    def add(self, *records: Record) -> None:
        self.records += records

    def one(self, kind: type[Any], **fields: object) -> Any:  # noqa: ANN401 - whichever record it is
        """Returns the first record of this kind with these fields."""
        return next(record for record in self.records if is_like(record, kind, fields))

    def all(self, kind: type[Any], **fields: object) -> list[Any]:
        """Returns the records with these fields, in order."""
        return [record for record in self.records if is_like(record, kind, fields)]

    def replace(self, kind: type[Any], where: dict[str, object], **fields: object) -> None:
        """Sets fields of all records of this kind that match."""
        assert any(is_like(record, kind, where) for record in self.records), (kind, where)
        self.records = [
            replace(record, **fields) if is_like(record, kind, where) else record for record in self.records
        ]

    def drop(self, *kinds: type[Any], **fields: object) -> None:
        """Removes all records of these kinds that match."""
        before = len(self.records)
        self.records = [record for record in self.records if not any(is_like(record, kind, fields) for kind in kinds)]
        assert len(self.records) < before, (kinds, fields)

    def drop_calls(self, test: Callable[[Asked], bool]) -> None:
        """Removes these calls with their responses."""
        ops = {record.op for record in self.records if isinstance(record, Asked) and test(record)}
        assert ops
        self.records = [
            record
            for record in self.records
            if not (isinstance(record, Asked | Answered | Refused | Lost) and record.op in ops)
        ]

    def forget(self, *job_ids: str) -> None:
        """Removes all records of these jobs but the submits."""
        runs = {record.run for record in self.records if isinstance(record, Began) and record.job_id in job_ids}
        self.records = [
            replace(record, seen=[seen for seen in record.seen if seen.id not in job_ids])
            if isinstance(record, Answered)
            else record
            for record in self.records
            if getattr(record, "job_id", getattr(record, "id", None)) not in job_ids
            and not (isinstance(record, Ended) and record.run in runs)
        ]
        ops = {record.op for record in self.records if isinstance(record, Asked)}
        self.records = [
            record for record in self.records if not isinstance(record, Answered | Refused | Lost) or record.op in ops
        ]

    def op_of(self, call: str, job_id: str = "", name: str = "") -> str:
        """Returns the first call of this kind about this job."""
        return next(
            record.op
            for record in self.records
            if isinstance(record, Asked)
            and record.call == call
            and record.job_id == job_id
            and (not name or name in {one.name for one in record.wanted})
        )

    def last_us(self) -> int:
        return max(getattr(record, "at_us", 0) for record in self.records)


def is_like(record: Record, kind: type[Any], fields: dict[str, object]) -> bool:
    return isinstance(record, kind) and all(getattr(record, name) == value for name, value in fields.items())
