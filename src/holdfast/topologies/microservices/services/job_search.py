"""Lists and searches the records, in slices; other requests are served between two slices."""

from holdfast import limits
from holdfast.core.listing import Place
from holdfast.ledger.search import cursor_of, place_of, wanted_by
from holdfast.ports import JobQuery
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.server.grpc.public_service import checked_page, checked_sort
from holdfast.server.request_checks import checked_size, checked_states
from holdfast.topologies.microservices.services.job_views import record_message, summary_message
from holdfast.topologies.microservices.services.owner import StateOwner
from holdfast.topologies.microservices.state.records import Records

#: Maximum number of slices that one page of a search reads.
_SLICES_MAX = 20
#: Size limit of a page: the labels and headers of many jobs may exceed the limit of a message.
_PART_BYTES_MAX = limits.MESSAGE_BYTES_MAX // 2

_Part = tuple[list[pb.GetJobRecordResponse], Place | None]


class JobListing:
    """Lists and searches records; every reply contains durable data only."""

    def __init__(self, state_owner: StateOwner, records: Records) -> None:
        self._state_owner = state_owner
        self._records = records

    async def page(self, request: pb.ListJobRecordsRequest) -> pb.ListJobRecordsResponse:
        """Returns jobs by creation time, ids ascending within a millisecond."""
        offset, size = checked_page(request.page)
        states, newest_first = checked_states(request.status_filter), checked_sort(request.sort)

        def query(_: int) -> pb.ListJobRecordsResponse:
            jobs, has_more = self._records.page(states, offset, size, newest_first=newest_first)
            token = str(offset + len(jobs)) if has_more else ""
            return pb.ListJobRecordsResponse(
                jobs=[summary_message(job) for job in jobs], page=public_pb.PageResponse(next_page_token=token)
            )

        return await self._state_owner.read(query)

    async def search(self, request: pb.ListJobRecordsRequest) -> pb.ListJobRecordsResponse:
        """Returns matching jobs and a cursor; a page may be short, or even empty, although more jobs follow."""
        search = request.search
        query = JobQuery(
            checked_states(request.status_filter),
            search.queue,
            search.type,
            dict(search.labels),
            search.created_from_ms,
            search.created_before_ms,
            not checked_sort(request.sort),
        )
        size, place = checked_size(request.page.page_size), place_of(query, search.cursor)
        found, room = list[pb.GetJobRecordResponse](), _PART_BYTES_MAX
        for _ in range(_SLICES_MAX):
            part, place = await self._slice(query, place, size - len(found), room)
            found += part
            room -= sum(record.ByteSize() for record in part)
            if place is None or len(found) == size or room <= 0:
                break
        return pb.ListJobRecordsResponse(records=found, next_cursor=cursor_of(query, place))

    async def _slice(self, query: JobQuery, after: Place | None, size: int, room: int) -> _Part:
        def read(now_ms: int) -> _Part:
            jobs, place = self._records.scan(
                query.states,
                after,
                size,
                newest_first=not query.oldest_first,
                wants=wanted_by(query),
                created_from_ms=query.created_from_ms,
                created_before_ms=query.created_before_ms,
            )
            part, left = list[pb.GetJobRecordResponse](), room
            for job in jobs:
                part.append(record_message(self._records, job, now_ms, has_payload=False))
                left -= part[-1].ByteSize()
                if left <= 0 and job is not jobs[-1]:
                    return part, (job.created_ms, job.id)
            return part, place

        return await self._state_owner.read(read)
