"""Compiles `loops.c` with cffi when the project is installed, as python-qpid-proton is compiled. Hatchling runs this.

If the compiler fails, the project is installed all the same, and uses the slower loops in `loops.py`.
"""

import shutil
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from cffi import FFI
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "router/amqp/proton"
SOURCES = "loops.c", "loops_build.py"
CALLED = """
const char *source(void);
bool init(void **functions, int count, int delivery, int nothing);
int transfers(void *collector, void *link, size_t most, int count, void *handles, bool *settled,
              uint32_t *sizes, char *out, size_t room);
int news(void *collector, void *link, bool sends, int count, void *handles);
void states(void *handles, int count, uint64_t *states, bool *settled);
void settle(void *handles, int count);
void update(void *handles, int count, uint64_t state);
void transfer(void *link, int count, const char *tags, const uint32_t *tag_sizes, const char *messages,
              const uint32_t *sizes, bool settled, void *handles);
"""
HEADERS = "#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\n#include <sys/types.h>\n"


def build(folder: Path) -> Path:
    """Compile the sources in this folder. Returns the path of the module. Raises the exceptions of cffi and the
    compiler."""
    made_of = sha256(b"".join((folder / name).read_bytes() for name in SOURCES)).hexdigest()
    # `loops.py` refuses a compiled module with another hash, because its sources were older.
    tells = f'static const char *source(void) {{ return "{made_of}"; }}\n'
    ffi = FFI()
    ffi.cdef(CALLED)
    ffi.set_source("_loops", HEADERS + tells + (folder / "loops.c").read_text())
    return Path(ffi.compile(tmpdir=mkdtemp()))


def put(built: Path, folder: Path) -> None:
    """Replace an earlier module atomically, because running processes may use it."""
    new = folder / f"{built.name}.new"
    shutil.copy(built, new)
    new.replace(folder / built.name)
    shutil.rmtree(built.parent)


class Compile(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root) / PLACE
        try:
            built = build(folder)
            if version == "editable":
                put(built, folder)
        except Exception as error:
            self.app.display_warning(f"loops.c could not be compiled, and routers are slower without it: {error}")
            return
        if version != "editable":
            build_data |= {"pure_python": False, "infer_tag": True}
            build_data["force_include"][str(built)] = f"{PLACE}/{built.name}"
