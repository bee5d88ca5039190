"""A PostgreSQL of a test's own, from Debian's package: its data in a folder, on a socket there."""

import contextlib
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["missing_postgres", "running_postgres"]


def _programs() -> str | None:
    """The folder of the newest server that is installed."""
    found = sorted(
        glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: float(path.split("/")[4])
    )
    return os.path.dirname(found[-1]) if found else None


def missing_postgres() -> str | None:
    """Why there is none, or None: a reason to skip."""
    return None if _programs() else "no PostgreSQL: scripts/debian-packages postgresql"


@contextlib.contextmanager
def running_postgres() -> Iterator[str]:
    """A server without passwords; gives the URL of its database."""
    programs = _programs()
    assert programs is not None, missing_postgres()
    # The path of a socket may have no more than 107 characters: not below pytest's folders.
    folder = tempfile.mkdtemp(prefix="odradek-pg-")
    data, log = f"{folder}/data", f"{folder}/log"
    user: int | None = None
    if os.geteuid() == 0:  # The server refuses to run as root; the package brings a user for it.
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        user = owner.pw_uid

    def call(program: str, *arguments: str) -> None:
        done = subprocess.run(
            [f"{programs}/{program}", *arguments], cwd=folder, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=120, user=user,
        )  # fmt: skip
        if done.returncode != 0:
            logged = Path(log).read_text() if os.path.exists(log) else ""
            raise RuntimeError(f"{program} failed: {done.stdout}{logged}")

    settings = f"-k {folder} -c listen_addresses='' -c fsync=off"
    try:
        call("initdb", "-D", data, "-A", "trust", "-U", "odradek", "--no-sync", "-E", "UTF8")
        # Its output would keep a pipe open for as long as the server runs.
        call("pg_ctl", "-D", data, "-l", log, "-w", "-t", "90", "-o", settings, "start", "-s")
        try:
            yield f"postgresql:///postgres?host={folder}&user=odradek"
        finally:
            call("pg_ctl", "-D", data, "-w", "-t", "60", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
