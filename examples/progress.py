"""A job that tells how far it is, watched while it runs, and one that is asked to stop."""

import sys
import time

from holdfast import Holdfast, JobCanceledError, State, current

app = Holdfast(sys.argv[1] if len(sys.argv) > 1 else "memory://")


@app.job
def count(steps: int, pause_s: float) -> int:
    """Says after each step how far it is, and ends early if it should."""
    for step in range(steps):
        current().raise_if_canceled()
        current().progress((step + 1) / steps, f"step {step + 1} of {steps}")
        time.sleep(pause_s)
    return steps


def main() -> None:
    """Watches one job to its end, and stops another."""
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
