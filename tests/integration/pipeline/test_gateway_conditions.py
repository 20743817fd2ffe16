"""Problems of the schedulers, as a gateway of the pipeline shows them over HTTP."""

from holdfast.core.condition import Condition
from holdfast.ledger.admin_api import LedgerAdmin
from holdfast.settings import MEMORY, Settings
from holdfast.topologies.pipeline.gateway import PipelineGateway
from tests.integration.pipeline.schedulers_in_process import site
from tests.integration.test_conditions import becomes


async def test_gateway_shows_unavailable_schedulers_and_their_warnings() -> None:
    """/readyz and the metrics of both ports count the unavailable schedulers, and have the warnings of the others."""
    async with site(2) as here:
        settings = Settings(data=MEMORY, port=0, http_port=0, log_level="error")
        gateway = PipelineGateway(settings, [one.address for one in here.schedulers], also_port=0, check_ms=50)
        addresses = await gateway.start()
        both = (addresses["http"], addresses["http_also"])
        for address in both:
            await becomes(address, ("ready\n", "holdfast_warnings 0"))
        admin = here.ledger.admin
        assert isinstance(admin, LedgerAdmin)
        admin._conditions = lambda: [Condition("full", "'/secret'")]
        for address in both:
            await becomes(address, ("ready\nwarning: full\n", "holdfast_warnings 1"))
        await here.schedulers[0].stop()
        one = "ready\nwarning: 1 of 2 schedulers is unavailable\nwarning: full\n"
        for address in both:
            await becomes(address, (one, "holdfast_warnings 2"))
        await here.schedulers[1].stop()
        for address in both:
            await becomes(address, ("ready\nwarning: 2 of 2 schedulers are unavailable\n", "holdfast_warnings 1"))
        await gateway.stop()
