"""The journal of a state directory: one SQLite file, kept by one service at a time."""

from __future__ import annotations

import secrets
import sqlite3
from typing import TYPE_CHECKING

from samplekit.errors import ServiceError
from samplekit.server.folders import private_folder

if TYPE_CHECKING:
    from pathlib import Path

JOURNAL = "journal.sqlite"
# Stands beside an open journal, and after a kill: the latest of it is in SQLite's -wal file then.
_MARK, _LATEST = "journal.open", f"{JOURNAL}-wal"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS resources (id TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, record BLOB NOT NULL, covered INTEGER NOT NULL DEFAULT 0,
    trained TEXT NOT NULL DEFAULT '', served TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS operations (
    number INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL,
    key TEXT NOT NULL, digest BLOB NOT NULL, body BLOB, payload_id TEXT, status TEXT NOT NULL,
    output BLOB NOT NULL DEFAULT x'7b7d', error_code TEXT, error_message TEXT NOT NULL DEFAULT '',
    passes INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS bodies ON operations (session, number) WHERE body IS NOT NULL;
"""


def open_journal(folder: Path, model_name: str) -> sqlite3.Connection:
    """Open the journal in a folder, or begin one; no other service can until `close_journal`.

    Raises:
        ServiceError: the folder cannot be used, another service uses it, it is of another base model, or its latest
            part is gone.
    """
    opened: sqlite3.Connection | None = None
    try:
        _refuse_lost(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        private_folder(folder / "policies")
        journal = folder / JOURNAL
        journal.touch(mode=0o600)
        journal.chmod(0o600)  # of what SQLite writes beside it, too
        opened = sqlite3.connect(journal, timeout=0, check_same_thread=False)
        # The lock is kept until the process ends, so that no second service writes here.
        for setting in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
            opened.execute(f"PRAGMA {setting}")
        opened.executescript(_SCHEMA)
        with opened:
            opened.execute("INSERT OR IGNORE INTO meta VALUES ('base_model', ?)", (model_name,))
            opened.execute("INSERT OR REPLACE INTO meta VALUES ('opened', ?)", (secrets.token_hex(8),))
        (found,) = opened.execute("SELECT value FROM meta WHERE name = 'base_model'").fetchone()
        (folder / _MARK).touch(mode=0o600)
    except (OSError, sqlite3.Error, ValueError, TypeError) as error:  # the latter two of a journal that is damaged
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
            raise ServiceError(
                f"a service already runs on {folder}: stop it first, or choose another folder"
            ) from error
        if opened is not None:
            close_journal(folder, opened)
        raise ServiceError(
            f"state cannot be kept in {folder} ({error}): choose another folder, and one for each service, or put "
            "a copy of the whole folder back"
        ) from error
    if found != model_name:
        close_journal(folder, opened)
        raise ServiceError(f"{folder} holds sessions of {found!r}, not of {model_name!r}: choose another folder")
    return opened


def close_journal(folder: Path, opened: sqlite3.Connection) -> None:
    """Close a journal, so that another service may open it."""
    (folder / _MARK).unlink(missing_ok=True)  # first: SQLite removes the -wal file
    opened.close()


def _refuse_lost(folder: Path) -> None:
    """Refuse a journal that nobody closed and whose latest part is gone: what was accepted would begin anew."""
    mark, latest = folder / _MARK, folder / _LATEST
    if mark.exists() and not (latest.exists() and latest.stat().st_size):
        raise ServiceError(
            f"{latest} is gone or empty, which holds the latest of what was accepted: put a copy of the whole folder "
            f"back, choose another folder, or remove {mark} to go on with what {JOURNAL} holds"
        )
