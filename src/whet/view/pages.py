"""The pages that show runs: their files, and the policies that let nothing foreign run in them."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from whet.dataclass import dataclass

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
    "img-src 'self'; "
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


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the pages."""

    content: bytes
    media_type: str
    etag: str


@cache
def page_files() -> dict[str, PageFile]:
    """Return the files of the pages by their names."""
    found = {}
    for item in files("whet.report").joinpath("page").iterdir():
        ending = item.name[item.name.rfind(".") :]
        if ending in _TYPES:
            content = item.read_bytes()
            found[item.name] = PageFile(content, _TYPES[ending], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


# The pages as one file, which opens from disk: there, modules and `fetch` do not work, so the modules are joined into
# one script, and a policy in the file lets only this script run, by its hash.

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
_ICON = re.compile("/?page/icon.svg")


def joined_script(sources: Mapping[str, str], main: str = _MAIN) -> str:
    """Return the modules of the pages as one script: each becomes a function, and its imports what others returned."""
    done: dict[str, str] = {}

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"modules import each other: {' -> '.join((*above, name))}")
        if name not in done:
            for found in _IMPORT.finditer(sources[name]):
                add(found[3] or found[4], (*above, name))
            done[name] = _as_function(name, sources[name])

    add(main, ())
    return '"use strict";\n' + "\n".join(done.values())


def _as_function(name: str, source: str) -> str:
    exported = [found[1] for found in _EXPORT.finditer(source)]
    exported += [
        part.strip().replace(" as ", ": ") for found in _EXPORTED.finditer(source) for part in _names(found[1])
    ]
    renamed = (": ".join(reversed(part.split(": "))) if ": " in part else part for part in exported)
    body = _EXPORTED.sub("", _EXPORT.sub("", _IMPORT.sub(_destructured, source)))
    if (left := _LEFT.search(body)) is not None:
        raise ValueError(f"{name}: this cannot be joined: {left[0]}")
    return f"const {_variable(name)} = (() => {{\n{body}return {{ {', '.join(renamed)} }};\n}})();"


def _destructured(found: re.Match[str]) -> str:
    if found[4]:
        return ""
    module = _variable(found[3])
    if found[2]:
        return f"const {found[2]} = {module};\n"
    names = ", ".join(part.replace(" as ", ": ") for part in _names(found[1]))
    return f"const {{ {names} }} = {module};\n"


def _names(listed: str) -> list[str]:
    return [" ".join(part.split()) for part in listed.split(",") if part.strip()]


def _variable(name: str) -> str:
    return "module_" + re.sub(r"\W", "_", name.removesuffix(".js"))


@dataclass(frozen=True, slots=True)
class FilePage:
    """The pages as a file: its beginning, and its end after the documents."""

    beginning: bytes
    end: bytes


def file_page(*, parts: bool) -> FilePage:
    """Return the pages for a file, which may load *parts* from the folder around it."""
    found = page_files()
    script = joined_script({name: file.content.decode() for name, file in found.items() if name.endswith(".js")})
    if "</script" in script.lower() or "<!--" in script:
        raise ValueError("a module of the pages holds markup that would end its script")
    style = "".join(file.content.decode() for name, file in found.items() if name.endswith(".css"))
    script, style = f"\n{script}\n", f"\n{style}\n"
    page = _TAGS.sub(lambda tag: f"<style>{style}</style>" if tag[1] else "", found[INDEX].content.decode())
    icon = f"data:image/svg+xml;base64,{base64.b64encode(found['icon.svg'].content).decode()}"
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_file_policy(script, style, parts=parts)}">'
    page = _ICON.sub(icon, page).replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n    {policy}', 1)
    beginning, end = page.split("</body>")
    return FilePage(beginning.encode(), f"<script>{script}</script>\n  </body>{end}".encode())


def _file_policy(script: str, style: str, *, parts: bool) -> str:
    loaded, trusted = (" 'strict-dynamic'", "whet-parts") if parts else ("", "'none'")
    return (
        "default-src 'none'; "
        f"script-src {source_hash(script)}{loaded}; "
        f"style-src {source_hash(style)}; "
        "img-src data:; "
        "base-uri 'none'; "
        "form-action 'none'; "
        "require-trusted-types-for 'script'; "
        f"trusted-types {trusted}"
    )


def source_hash(text: str) -> str:
    """Return how a policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
