"""How the run went, in figures: latencies, pauses, what met a fault on its way. The verdict does not rest on it."""
