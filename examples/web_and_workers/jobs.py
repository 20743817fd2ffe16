"""The jobs that the web process and the workers share: both import this module."""

import os
import time

from holdfast import Holdfast

app = Holdfast(os.environ.get("JOBS", "./web-jobs"))


@app.job(queue="images", max_attempts=3, timeout_s=30)
def resize(path: str, width: int) -> str:
    """Simulates the work."""
    time.sleep(0.05)
    return f"{path}@{width}"
