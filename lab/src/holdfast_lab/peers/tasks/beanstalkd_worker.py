"""`python -m holdfast_lab.peers.tasks.beanstalkd_worker`: one job at a time, as a minimal worker does it.

The result is put, and so synced, before its job is deleted: a killed worker loses neither.
"""

from holdfast_lab.peers import trial_environment, work
from holdfast_lab.peers.beanstalkd_client import BeanstalkdClient
from holdfast_lab.peers.raw_job import RawJob, RawResult, decode_job, encode

JOBS = "jobs"
RESULTS = "results"


def run(job: RawJob) -> RawResult:
    """Call the job's function."""
    return RawResult(getattr(work, job.function)(*job.arguments), job.ticket)


def main() -> None:
    """Work until killed."""
    client = BeanstalkdClient(trial_environment.store_address(), puts_into=RESULTS, reserves_from=JOBS)
    while True:
        number, body = client.reserve()
        client.put([encode(run(decode_job(body)))])
        client.delete(number)


if __name__ == "__main__":
    main()
