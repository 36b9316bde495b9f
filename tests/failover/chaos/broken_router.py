"""A router with one rule switched off: `python -m tests.failover.chaos.broken_router MUTANT NAME ...`."""

import sys

from router.cli.commands import Commands
from router.cli.router import router
from tests.mutants import breaks_audience
from tests.mutants.mutant import MUTANTS

if __name__ == "__main__":
    assert breaks_audience.__doc__  # importing the module has registered its mutants
    mutant, *arguments = sys.argv[1:]
    with MUTANTS[mutant].applied():
        Commands(commands=[router])(["router", *arguments], prog_name="python -m")
