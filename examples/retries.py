"""Retries of failed jobs: with exponential backoff, after a delay that the job chooses, or none."""

import sys

from holdfast import Backoff, Holdfast, JobFailedError, PermanentError, Retry, current

app = Holdfast(sys.argv[1] if len(sys.argv) > 1 else "memory://")


@app.job(max_attempts=4, backoff=Backoff.exponential(base_s=0.1, max_s=1), no_retry=(KeyError,))
def fetch(url: str) -> str:
    """Fails in the way that the URL names."""
    attempt = current().attempt
    if url == "flaky" and attempt < 3:
        raise ConnectionError("no answer")
    if url == "busy" and attempt == 1:
        raise Retry("the other side is busy", after_s=0.2)
    if url == "gone":
        raise PermanentError("410 Gone")
    if url == "bug":
        raise KeyError("a bug that a retry does not fix")
    return f"{url} after {attempt} attempts"


def main() -> None:
    """Submits one job for each case and prints its result or failure."""
    with app, app.worker():
        for job in fetch.submit_many([("fine",), ("flaky",), ("busy",), ("gone",), ("bug",)]):
            try:
                print(job.result(timeout_s=30))
            except JobFailedError as error:
                print("failed:", error.reason)


if __name__ == "__main__":
    main()
