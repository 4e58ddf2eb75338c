"""A PostgreSQL of our own: made in an empty folder, reached by a socket there, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin", "/usr/pgsql-*/bin")
# It refuses to run as root; these are there on every Debian.
_OTHERS = ("postgres", "nobody")


def find_programs() -> Path | None:
    """The folder with `initdb` and `pg_ctl`, the newest one."""
    found = shutil.which("pg_ctl")
    if found:
        return Path(found).resolve().parent
    folders = [folder for place in _PLACES for folder in sorted(Path("/").glob(place.lstrip("/")))]
    return next((folder for folder in reversed(folders) if (folder / "pg_ctl").exists()), None)


class Cluster:
    """A running server that makes fresh databases."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        # Not below the tests' own folder: the path of a socket may have only a hundred characters.
        self.folder = Path(tempfile.mkdtemp(prefix="whet-pg-"))
        self._count = 0
        self._as = self._somebody_else() if os.getuid() == 0 else []
        data = self.folder / "data"
        self._run("initdb", "-D", str(data), "-A", "trust", "-U", "whet", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        options = f"-k {self.folder} -c listen_addresses= -c fsync=off -c max_connections=200"
        self._run("pg_ctl", "-D", str(data), "-w", "-s", "-l", str(self.folder / "log"), "-o", options, "start")

    def _somebody_else(self) -> list[str]:
        known = {entry.pw_name for entry in pwd.getpwall()}
        name = next(name for name in _OTHERS if name in known)
        shutil.chown(self.folder, name)
        self.folder.chmod(0o755)
        return ["setpriv", f"--reuid={name}", f"--regid={pwd.getpwnam(name).pw_gid}", "--clear-groups"]

    def _run(self, program: str, *arguments: str) -> None:
        # Without its own output: the server would hold the pipe open.
        log = self.folder.with_suffix(".setup")
        with log.open("ab") as output:
            ended = subprocess.run(
                [*self._as, str(self._programs / program), *arguments],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                cwd="/",
                check=False,
            )
        assert ended.returncode == 0, log.read_text()

    def fresh_url(self) -> str:
        """The URL of an empty database."""
        self._count += 1
        name = f"whet{self._count}"
        self._run("createdb", "-h", str(self.folder), "-U", "whet", name)
        return f"postgresql://whet@/{name}?host={self.folder}"

    def restart(self) -> None:
        """Crash the server, and start it again."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-s", "-m", "immediate", "restart")

    def stop(self) -> None:
        """End the server and remove everything."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-s", "-m", "immediate", "stop")
        shutil.rmtree(self.folder)
        self.folder.with_suffix(".setup").unlink()
