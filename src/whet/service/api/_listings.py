"""What was read of runs and is asked for again: the lists of their files, and what pages show of them.

Each organisation has its own, so that none waits while another's is read, and none fills the memory of all.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict

from whet.service.store.run_folder import RunFolder
from whet.view.addresses import Views

File = tuple[str, int]
# Of all organisations together; a path takes about 200 bytes.
_MOST_FILES = 500_000
_MOST_ORGANISATIONS = 100


class Listings:
    """The files of runs that have ended, which do not change: walking through 100,000 of them takes seconds."""

    def __init__(self, most: int = _MOST_FILES) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, list[File]] = OrderedDict()

    def page(self, folder: RunFolder, *, ended: bool, below: str, after: str | None, most: int) -> list[File]:
        """Return paths and sizes of files in the folder *below*, sorted, at most *most* of those after *after*."""
        files = self._find(folder, ended=ended)
        inside = f"{below.strip('/')}/" if below.strip("/") else ""
        start = bisect_left(files, (inside,))
        if after is not None:
            start = max(start, bisect_right(files, after, key=lambda file: file[0]))
        return [file for file in files[start : start + most] if file[0].startswith(inside)]

    def _find(self, folder: RunFolder, *, ended: bool) -> list[File]:
        name = folder.path.name
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        files = sorted(folder.files())
        if ended:
            self._keep(name, files)
        return files

    def _keep(self, name: str, files: list[File]) -> None:
        with self._lock:
            self._kept[name] = files
            while sum(map(len, self._kept.values())) > self._most:
                self._kept.popitem(last=False)


class OrganisationViews:
    """The views of each organisation; those that were used last are kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Views] = OrderedDict()

    def of(self, organisation_id: str) -> Views:
        """Return the views of one organisation."""
        with self._lock:
            views = self._kept.setdefault(organisation_id, Views(private=True))
            self._kept.move_to_end(organisation_id)
            while len(self._kept) > _MOST_ORGANISATIONS:
                self._kept.popitem(last=False)
            return views
