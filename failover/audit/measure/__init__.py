"""Measures the run in figures: latencies, pauses, and the fates of deliveries that were under way during a fault. The
verdict does not depend on these figures."""
