"""Measures the run: latencies, pauses, and what happened to deliveries that were under way during a fault. The verdict
does not depend on these figures."""
