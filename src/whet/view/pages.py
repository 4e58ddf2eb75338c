"""The pages that show runs: their files, and the policies that let nothing foreign run in them."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files

from msgspec import Struct

from whet.model import codec

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The browser loads and runs only our own files, sends nothing elsewhere, and lets no other page frame ours.
# Trusted types without a policy make it refuse `innerHTML` and the like, so no text becomes markup.
_POLICY = (
    "default-src 'none'; "
    "script-src 'self'; "
    "style-src 'self'; "
    # Pictures that agents looked at are in their events, as data.
    "img-src 'self' data:; "
    "connect-src 'self'; "
    "base-uri 'none'; "
    "form-action 'none'; "
    "frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
PAGE_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # The browser asks each time, so that a page never mixes files of two versions.
    "cache-control": "no-cache",
}
SAFE_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
# A file of an agent must never run in the browser of somebody who looks at it.
HARMLESS = {"content-security-policy": "sandbox; default-src 'none'", "content-disposition": "attachment"}
INDEX = "index.html"
# By it we know a page that we wrote.
MARK = '<meta name="generator" content="whet">'


class PageFile(Struct, frozen=True):
    """A file of the pages."""

    content: bytes
    media_type: str
    etag: str


@cache
def page_files() -> dict[str, PageFile]:
    """Return the files of the pages by their names."""
    contents = {}
    for item in files("whet.view").joinpath("page").iterdir():
        ending = item.name[item.name.rfind(".") :]
        if ending in _TYPES:
            content = item.read_bytes()
            contents[item.name] = PageFile(content, _TYPES[ending], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return contents


# The pages as one file, which opens from disk: there, modules and `fetch` do not work, so the modules are joined into
# one script, and a policy in the file lets only this script and the one for colours run, by their hashes.

_IMPORT = re.compile(
    r'^import\s+(?:\{([^}]*)\}|\*\s+as\s+(\w+))\s+from\s+"\./([\w.-]+)";\n|^import\s+"\./([\w.-]+)";\n', re.MULTILINE
)
_EXPORT = re.compile(r"^export\s+(?=(?:(?:async\s+)?function\b\s*\*?|class|const)\s*([\w$]+))", re.MULTILINE)
_EXPORTED = re.compile(r"^export\s+\{([^}]*)\};\n", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
_MAIN = "app.js"
_TAGS = re.compile(
    r'<link rel="stylesheet" href="/?page/([\w.-]+)">|<script type="module" src="/?page/[\w.-]+"></script>'
)
_EARLY = re.compile(r'<script src="/?page/([\w.-]+)"></script>')
_ICON = re.compile("/?page/icon.svg")


def joined_script(sources: Mapping[str, str], main: str = _MAIN) -> str:
    """Return the modules of the pages as one script: each becomes a function, and its imports what others returned."""
    functions: dict[str, str] = {}

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"modules import each other: {' -> '.join((*above, name))}")
        if name not in functions:
            for match in _IMPORT.finditer(sources[name]):
                add(match[3] or match[4], (*above, name))
            functions[name] = _as_function(name, sources[name])

    add(main, ())
    return '"use strict";\n' + "\n".join(functions.values())


def _as_function(name: str, source: str) -> str:
    names = [match[1] for match in _EXPORT.finditer(source)]
    names += [part.strip().replace(" as ", ": ") for match in _EXPORTED.finditer(source) for part in _names(match[1])]
    properties = (": ".join(reversed(part.split(": "))) if ": " in part else part for part in names)
    body = _EXPORTED.sub("", _EXPORT.sub("", _IMPORT.sub(_destructure, source)))
    if (left := _LEFT.search(body)) is not None:
        raise ValueError(f"{name}: this cannot be joined: {left[0]}")
    return f"const {_variable(name)} = (() => {{\n{body}return {{ {', '.join(properties)} }};\n}})();"


def _destructure(match: re.Match[str]) -> str:
    if match[4]:
        return ""
    module = _variable(match[3])
    if match[2]:
        return f"const {match[2]} = {module};\n"
    names = ", ".join(part.replace(" as ", ": ") for part in _names(match[1]))
    return f"const {{ {names} }} = {module};\n"


def _names(names: str) -> list[str]:
    return [" ".join(part.split()) for part in names.split(",") if part.strip()]


def _variable(name: str) -> str:
    return "module_" + re.sub(r"\W", "_", name.removesuffix(".js"))


class FilePage(Struct, frozen=True):
    """The pages as a file: its beginning, and its end after the documents."""

    beginning: bytes
    end: bytes


def file_page(*, parts: bool) -> FilePage:
    """Return the pages for a file, which may load *parts* from the folder around it."""
    files = page_files()
    script = joined_script({name: file.content.decode() for name, file in files.items() if name.endswith(".js")})
    if "</script" in script.lower() or "<!--" in script:
        raise ValueError("a module of the pages holds markup that would end its script")
    index = files[INDEX].content.decode()
    # One rule may win over another because it comes later, so the order of the page holds in the file too.
    style_names = [tag[1] for tag in _TAGS.finditer(index) if tag[1]]
    style = "".join(files[name].content.decode() for name in style_names)
    script, style = f"\n{script}\n", f"\n{style}\n"
    # What runs before the page is drawn stays where it is.
    early = [f"\n{files[match[1]].content.decode()}" for match in _EARLY.finditer(index)]
    index = _EARLY.sub(lambda match: f"<script>\n{files[match[1]].content.decode()}</script>", index)
    page = _TAGS.sub("", index).replace("</head>", f"<style>{style}</style>\n  </head>", 1)
    icon = f"data:image/svg+xml;base64,{base64.b64encode(files['icon.svg'].content).decode()}"
    scripts = " ".join(source_hash(source) for source in (*early, script))
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_file_policy(scripts, style, parts=parts)}">'
    page = _ICON.sub(icon, page).replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n    {policy}', 1)
    page = page.replace("</title>", f"</title>\n    {MARK}", 1)
    beginning, end = page.split("</body>")
    return FilePage(beginning.encode(), f"<script>{script}</script>\n  </body>{end}".encode())


def page_with(documents: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """Yield the pages as one file with *documents* in it, each by its address, in pieces."""
    page = file_page(parts=False)
    yield page.beginning
    yield b'<script type="application/json" id="whet-documents">{'
    separator = b"\n"
    for where, document in documents:
        yield separator + without_markup(codec.encode(where) + b":" + document)
        separator = b",\n"
    yield b"\n}</script>\n"
    yield page.end


def without_markup(document: bytes) -> bytes:
    """Return JSON without `<`, which ends a script even inside of a string; it is nowhere else in JSON."""
    return document.replace(b"<", b"\\u003c")


def _file_policy(script_hashes: str, style: str, *, parts: bool) -> str:
    script_source, trusted_types = (" 'strict-dynamic'", "whet-parts") if parts else ("", "'none'")
    return (
        "default-src 'none'; "
        f"script-src {script_hashes}{script_source}; "
        f"style-src {source_hash(style)}; "
        "img-src data:; "
        "base-uri 'none'; "
        "form-action 'none'; "
        "require-trusted-types-for 'script'; "
        f"trusted-types {trusted_types}"
    )


def source_hash(text: str) -> str:
    """Return how a policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
