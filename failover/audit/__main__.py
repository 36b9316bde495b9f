"""The audit as a program for `spark-submit` (docs/audit.md). The arguments are run directories.

The program prints the report and writes audit.json and audit.html into the current folder. Its exit status is the
verdict, as with `oncemesh audit`.
"""

import sys

from rich.console import Console

from failover.audit import run, write_page


def main(run_dirs: list[str]) -> int:
    if not run_dirs:
        sys.exit("expected at least one run directory, such as hdfs:///runs/triangle")
    report = run(run_dirs)
    report.render(Console(width=None if sys.stdout.isatty() else 160))
    report.write("audit.json")
    write_page(report, "audit.html")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
