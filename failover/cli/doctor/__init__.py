"""`oncemesh doctor`: finds faults of this host, of a topology, and of the mesh that runs here.

`symptoms` collects the facts. `checks` judges them; each check is a function of these facts. `command` prints the
findings.
"""
