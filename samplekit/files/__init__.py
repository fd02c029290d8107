"""Chats and samples in and out of files: streamed, faults named path:line, whole files or none."""

from samplekit.files.chats import TOKEN_ROW_KEYS, Row, read_chats, read_rows
from samplekit.files.lines import read_lines, write_whole
from samplekit.files.lock import check_lock, lock_path, locked_clock, make_lock, read_lock
from samplekit.files.run_folder import RunFolder
from samplekit.files.samples import read_sample_rows, read_samples, write_samples

__all__ = [
    "TOKEN_ROW_KEYS",
    "Row",
    "RunFolder",
    "check_lock",
    "lock_path",
    "locked_clock",
    "make_lock",
    "read_chats",
    "read_lines",
    "read_lock",
    "read_rows",
    "read_sample_rows",
    "read_samples",
    "write_samples",
    "write_whole",
]
