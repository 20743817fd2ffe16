"""A job that reports its progress while it is watched, and a job that is canceled while it runs."""

import sys
import time

from holdfast import Holdfast, JobCanceledError, State, current

app = Holdfast(sys.argv[1] if len(sys.argv) > 1 else "memory://")


@app.job
def count(steps: int, pause_s: float) -> int:
    """Reports progress after each step, and ends early if the job is canceled."""
    for step in range(steps):
        current().raise_if_canceled()
        current().progress((step + 1) / steps, f"step {step + 1} of {steps}")
        time.sleep(pause_s)
    return steps


def main() -> None:
    """Watches one job until it ends, and cancels another."""
    with app, app.worker():
        job = count.submit(3, pause_s=1.0)
        for view in job.events():
            progress = f"{view.progress.fraction:.0%}: {view.progress.message}" if view.progress else ""
            print(view.state.name, progress)
        print("counted", job.result())

        endless = count.submit(1_000_000, pause_s=0.01)
        for view in endless.events():
            if view.state is State.RUNNING:
                endless.cancel("long enough")
        try:
            endless.result()
        except JobCanceledError as error:
            print(error)


if __name__ == "__main__":
    main()
