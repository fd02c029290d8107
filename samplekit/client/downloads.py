"""Files of a checkpoint, fetched once: resumed where they broke off, checked by size, seen only once they are whole."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from samplekit.client.exchange import retry_delay
from samplekit.client.faults import call_error
from samplekit.client.flows import URL_EXPIRED, Terms, request_for
from samplekit.client.part_files import PartFile
from samplekit.client.polling import poll_interval
from samplekit.client.progress import Transferred, Watch
from samplekit.client.settings import one_of, shown, text
from samplekit.client.steps import Failure, Fetch, Held, Outcome, Pause, Reply, Request, Work
from samplekit.errors import SampleError, ServiceError, StatusError
from samplekit.wire import names
from samplekit.wire.listings import CheckpointFile, parse_files

if TYPE_CHECKING:
    from samplekit.client.steps import Flow

_VARIANTS = ("adapter", "merged")
_NAMED = 5  # files that an error names at most
_WHOLE, _PART, _BEYOND_END = 200, 206, 416
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")


def download_checkpoint(
    terms: Terms, checkpoint_id: object, folder: str | os.PathLike[str], variant: str
) -> Flow[list[Path]]:
    """Fetch a checkpoint's files into a folder; they appear under their names once all of them are whole.

    When it breaks off, what was fetched stays beside them under a name that begins with a dot: asked again, only the
    rest is fetched. Where another process, such as another rank, fetches the same files into the same folder, it is
    waited for, and nothing is fetched twice. Files of these names that are there already stay until then, and are gone
    before the first new one appears: where it breaks off between two of them, what is there is of one checkpoint alone.

    Raises:
        SampleError: the variant is unknown, or the folder is a file, or holds files that are not this checkpoint's.
        ServiceError: the service will not give the files, or not with the sizes it named.
        OSError: a file cannot be written, or the disk lacks the room for all of them.
    """
    one_of("variant", variant, _VARIANTS)
    identity = text("checkpoint_id", checkpoint_id)
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise SampleError(f"folder is {shown(str(target))}, which is a file: name a folder")
    files = yield from _files(terms, identity, variant)
    for item in files:
        _require_plain(item.filename)
    _require_alone(target, files, f"the {variant} files of checkpoint {identity}")
    target.mkdir(parents=True, exist_ok=True)
    parts = [PartFile(target, item, f"{identity}/{variant}") for item in files]
    try:
        for part in sorted(parts, key=lambda part: part.item.filename):  # all who download lock in one order
            yield from _held(terms, part)
        _require_room(target, parts)
        for part in parts:
            yield from _complete(terms, part, lambda: _files(terms, identity, variant))

        def publish() -> list[Path]:
            _require_alone(target, files, f"the {variant} files of checkpoint {identity}")
            for part in parts:
                part.make_way()
            return [part.publish() for part in parts]

        paths: list[Path] = yield Held(Work(publish))
        return paths
    finally:
        for part in parts:
            part.close()


def _files(terms: Terms, checkpoint_id: str, variant: str) -> Flow[list[CheckpointFile]]:
    what = f"get the {variant} files of checkpoint {checkpoint_id}"
    query = {"variant": f"CHECKPOINT_VARIANT_{variant.upper()}"}
    request = request_for(names.DOWNLOAD_CHECKPOINT, what, query=query, checkpoint_id=checkpoint_id)
    (other,) = set(_VARIANTS) - {variant}
    try:
        files = yield from terms.call(request, parse_files)
    except StatusError as error:
        if error.status not in {400, 422}:
            raise
        raise error.reworded(f"{error.message}; in Python variant={other!r} asks for the other files") from error
    if not files:
        raise ServiceError(f"could not {what}: the service names none; pass variant={other!r}")
    return files


def _require_plain(filename: str) -> None:
    """Refuse a name that could leave the folder, or hide in it."""
    if filename.startswith(".") or not filename.isprintable() or set(filename) & set('/\\:*?"<>|'):
        raise ServiceError(
            f"the service names a file {shown(filename)}, expected a plain file name: nothing was fetched"
        )


def _require_alone(folder: Path, files: list[CheckpointFile], what: str) -> None:
    """Refuse a folder with other files, such as another checkpoint's: whoever loads it could not tell them apart."""
    ours = {item.filename for item in files}
    found = sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) if folder.exists() else []
    others = [name for name in found if name not in ours]
    if others:
        more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
        raise SampleError(
            f"folder {shown(str(folder))} holds {', '.join(map(shown, others[:_NAMED]))}{more} beside {what}: name a "
            "new or empty folder, or move them away; nothing was changed"
        )


def _require_room(folder: Path, parts: list[PartFile]) -> None:
    """Refuse sizes that the disk cannot hold, before it is full."""
    missing, free = sum(part.num_missing for part in parts), shutil.disk_usage(folder).free
    if missing > free:
        reason = (
            f"the service names {missing:,} bytes to fetch and {free:,} are free: make room, or name another folder"
        )
        raise OSError(errno.ENOSPC, reason, str(folder))


def _held(terms: Terms, part: PartFile) -> Flow[None]:
    """Wait until no other download has the file."""
    watch = Watch(f"{part.item.filename}, which another download fetches", terms.runtime)
    try:
        while not part.hold():
            watch.tell("WAITING")
            yield Pause(poll_interval(watch.elapsed))
    finally:
        watch.end()


def _complete(terms: Terms, part: PartFile, renew: Callable[[], Flow[list[CheckpointFile]]]) -> Flow[None]:
    """Fetch the rest of a file, trying again as often as the protocol allows without a byte of progress."""
    url, attempt, renewed = part.item.url, 0, False
    while part.num_missing:
        before = part.num_bytes
        request = _request(part, url)
        outcome: Outcome = yield Fetch(request, lambda reply: _begin(part, reply), lambda: _tell(terms, part))
        if not part.num_missing:
            return
        if part.num_bytes > before:
            attempt, renewed = 0, False
        if isinstance(outcome, Reply) and outcome.status in URL_EXPIRED and not renewed:
            url, renewed = _url_of(part.item, (yield from renew())), True
            continue
        outcome = _as_fault(outcome, part)
        delay = retry_delay(request, outcome, attempt, terms.runtime)
        if delay is None or attempt >= terms.payload_retries:
            raise call_error(request, outcome, tries=attempt + 1)
        attempt += 1
        yield Pause(delay)


def _begin(part: PartFile, reply: Reply) -> Callable[[bytes], None] | None:
    """Take an answer: go on where it goes on, else start over."""
    if reply.status == _PART:
        found = _RANGE.fullmatch(reply.headers.get("content-range", "").strip())
        if found is None or int(found[1]) != part.num_bytes:
            part.discard()
            return None
    else:
        part.discard()
    return part.append


def _request(part: PartFile, url: str) -> Request:
    headers = {"accept": "*/*", "accept-encoding": "identity"}
    if part.num_bytes:
        headers["range"] = f"bytes={part.num_bytes}-"
    what = f"download {part.item.filename}"
    return Request(what, "GET", url, headers=headers, repeatable=True, authorized=False)


def _as_fault(outcome: Outcome, part: PartFile) -> Outcome:
    """Take an answer that ended before the file did for a lost one."""
    if not isinstance(outcome, Reply) or outcome.status not in {_WHOLE, _PART, _BEYOND_END}:
        return outcome
    if outcome.status == _BEYOND_END:
        part.discard()
    return Failure(f"{part.num_bytes} of {part.item.size} bytes came", sent=True)


def _url_of(wanted: CheckpointFile, files: list[CheckpointFile]) -> str:
    """Find a file's new URL."""
    for item in files:
        if (item.filename, item.size) == (wanted.filename, wanted.size):
            return item.url
    raise ServiceError(f"the service names no {wanted.filename} of {wanted.size} bytes any more: download it again")


def _tell(terms: Terms, part: PartFile) -> None:
    terms.runtime.listener(Transferred(part.item.filename, part.num_bytes, part.item.size))
