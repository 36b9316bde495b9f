"""Golden scenarios: what the cores of a mesh say, step by step, beside a picture of it. See README.md."""
