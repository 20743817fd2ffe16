"""A ledger in memory, used from several threads."""

import asyncio

from holdfast.core.model import Template
from holdfast.ports import JobDraft
from holdfast.settings import MEMORY, Settings
from holdfast.topologies.embedded.served_ledger import MemoryLink


async def test_link_is_open_from_its_first_moment() -> None:
    """A link is complete as soon as other threads can find it, so that their first submit is answered."""
    link = MemoryLink(Settings(data=MEMORY))
    job_id = "00000000-0000-4000-8000-000000000001"
    submitted = await asyncio.to_thread(link.blocking_calls().submit, [Template("brew")], [JobDraft(id=job_id)])
    assert submitted.job_ids == [job_id]
    assert (await link.call(lambda ports: ports.jobs.get(job_id))).id == job_id
    await link.close()
