"""The time for which tests wait for an event. A test that reaches it hangs, however busy its machine is."""

from typing import Final

HANGS_S: Final = 300.0
