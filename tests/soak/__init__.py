"""Real meshes under load, broken at random instants, again and again; see `tests.soak.__main__`."""
