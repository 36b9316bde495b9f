"""How long tests wait for an event: a test that reaches the bound hangs, however busy its machine is."""

from typing import Final

HANGS_S: Final = 300.0
