"""How much memory this process has asked for. The kernel may take back, and give again, pages of files; those do not
count."""

from pathlib import Path


def heap_bytes() -> int:
    """Bytes of anonymous memory, in memory or swapped out."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(status[name].split()[0]) << 10 for name in ("RssAnon", "VmSwap"))
