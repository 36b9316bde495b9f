"""The console's own files. They are read from the package once, and sent unchanged."""

from importlib.resources import files
from typing import Final

from router.http.exchange import WebAnswer, WebCaller, WebRequest
from router.http.site import Page

FOLDER: Final = "page"
TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
INDEX: Final = "index.html"


def file_pages() -> dict[str, Page]:
    """The pages, keyed by path; `index.html` is `/`."""
    found = sorted(files(__package__).joinpath(FOLDER).iterdir(), key=lambda file: file.name)
    pages = {f"/{file.name}": _page(file.name, file.read_bytes()) for file in found}
    return {"/": pages.pop(f"/{INDEX}"), **pages}


def _page(name: str, content: bytes) -> Page:
    answer = WebAnswer(200, content, TYPES[name.rpartition(".")[2]])

    async def show(request: WebRequest, caller: WebCaller) -> WebAnswer:
        return answer

    return Page(show)
