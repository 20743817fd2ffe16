"""The command line of a child process that runs a module of the product.

`-P` keeps the working directory off the module path of the child: a file `json.py` that lies there is not imported. A
worker that is given an application adds the working directory itself, after everything of the product is loaded.
"""

import sys


def child_command(module: str, *arguments: str) -> list[str]:
    """The command that runs the module in a process of its own."""
    return [sys.executable, "-P", "-m", module, *arguments]
