"""`python -m tests.golden`: write the traces of all golden scenarios anew, as the cores produce them today."""

from tests.golden.script import SCENARIOS, play

for path in SCENARIOS:
    path.write_text(play(path.read_text()))
