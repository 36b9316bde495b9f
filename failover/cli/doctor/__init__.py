"""`oncemesh doctor`: what is wrong with this host, a topology and the mesh that runs of it.

`symptoms` looks, and `checks` judges what was seen: so each check is a function of values. `command` shows it.
"""
