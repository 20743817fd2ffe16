"""The product's own HTTP connection against uvicorn: `python -m holdfast_lab.bench.uvicorn_comparison [--runs N]`.

Both servers are `holdfast server` with the same routes, checks and handlers; they differ in what reads requests and
writes responses (see `uvicorn_server`). In each run the two take turns. A ratio is the rate of uvicorn divided by the
rate of the product's own connection: below 1 the product's own is faster.
"""

import uvloop

from holdfast_lab.bench.grpc_load import BATCH
from holdfast_lab.bench.http_load import MANY, ONE, http_seconds
from holdfast_lab.bench.http_throughput import end_to_end
from holdfast_lab.measure.command import parser, show
from holdfast_lab.measure.measures import progress
from holdfast_lab.measure.numbers import cell
from holdfast_lab.measure.processes import holdfast_server
from holdfast_lab.measure.rounds import Say, announced, orders
from holdfast_lab.measure.tables import columns

_JOBS = "/api/v1/jobs"
_UVICORN = "holdfast_lab.bench.uvicorn_server"
_LISTENERS = 200
_JOBS_PRODUCED = 50_000
_TURNS = 5


async def submits() -> tuple[float, float]:
    """The ratios of submits one by one, 64 in flight, and of submits in batches."""
    with holdfast_server() as own, holdfast_server(program=_UVICORN) as other:
        ones, batches = {own.http: 0.0, other.http: 0.0}, {own.http: 0.0, other.http: 0.0}
        for turn, order in orders((own.http, other.http), _TURNS + 1):
            for address in order:
                one = await http_seconds(address, _JOBS, ONE, 1_280, 64)
                batch = await http_seconds(address, _JOBS, MANY, 20, 4)
                if turn:  # the first turn warms up
                    ones[address] += one
                    batches[address] += batch
        return ones[own.http] / ones[other.http], batches[own.http] / batches[other.http]


async def listeners(say: Say) -> float:
    """The ratio of jobs end to end while 200 clients receive every event."""
    uvicorn = await end_to_end(_JOBS_PRODUCED, _LISTENERS, say, _UVICORN)
    return uvicorn / await end_to_end(_JOBS_PRODUCED, _LISTENERS, say)


async def compare(runs: int, say: Say) -> dict[str, list[float]]:
    """The ratios of each run."""
    ratios: dict[str, list[float]] = {"one by one": [], f"batches of {BATCH}": [], f"{_LISTENERS} listeners": []}
    for _ in announced("uvicorn", runs, say):
        figures = (*await submits(), await listeners(say))
        for values, figure in zip(ratios.values(), figures, strict=True):
            values.append(figure)
    return ratios


def main() -> None:
    """Print the median and the spread of each ratio."""
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=5)
    given = options.parse_args()
    ratios = uvloop.run(compare(given.runs, progress()))
    rows = [(name, cell(values)) for name, values in ratios.items()]
    show(ratios, columns(("rate of uvicorn / rate of the product's own connection", "×"), rows), as_json=given.json)


if __name__ == "__main__":
    main()
