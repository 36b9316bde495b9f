"""Golden scenarios: what the cores of a mesh send and do, step by step, beside a picture of the mesh. See README.md."""
