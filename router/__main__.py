"""`python -m router NAME TOPOLOGY ...`: one router process, as the launcher starts it."""

# ruff: noqa: E402
from router.mesh.signals import put_off

put_off()

import sys

from router.cli.commands import Commands
from router.cli.router import router

if __name__ == "__main__":
    Commands(commands=[router])(["router", *sys.argv[1:]], prog_name="python -m")
