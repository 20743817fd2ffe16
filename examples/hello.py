"""The smallest program: a function, a job and its result."""

import sys

from holdfast import Holdfast

app = Holdfast(sys.argv[1] if len(sys.argv) > 1 else "./hello-jobs")


@app.job
def greet(name: str) -> str:
    """Runs in a worker; called directly, it is an ordinary function."""
    return f"Hello, {name}!"


def main() -> None:
    """Submits a job and runs it in this process."""
    with app, app.worker():
        job = greet.submit("world")
        print(job.id, job.result(timeout_s=10))


if __name__ == "__main__":
    main()
