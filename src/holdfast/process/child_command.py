"""The command line of a child process that runs a module of the product.

`-P` keeps the working directory off the module path of the child, so that a file `json.py` there is not imported. A
worker with an app adds the working directory itself, after all modules of the product are loaded.
"""

import sys


def child_command(module: str, *arguments: str) -> list[str]:
    """Returns the command that runs the module in its own process."""
    return [sys.executable, "-P", "-m", module, *arguments]
