"""Checkpoints: listed, shown, and their files behind signed URLs that honour byte ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from starlette.responses import FileResponse

from samplekit.server.pages import one_of, page
from samplekit.server.refusals import Refusal, invalid, not_found
from samplekit.server.requests import json_response, service_of
from samplekit.wire.names import CheckpointType, CheckpointVariant

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from samplekit.server.checkpoints import Checkpoint

FILE_PREFIX = "/checkpoint-files/"
FILE_PATH = FILE_PREFIX + "{checkpoint_id}/{variant}/{filename}"


async def list_checkpoints(request: Request) -> Response:
    """List checkpoints, oldest first: ``type``, ``session_id`` and ``base_model`` choose."""
    query = request.query_params
    if query.get("type"):
        one_of("type", query["type"], CheckpointType)

    def chosen(item: Checkpoint) -> bool:
        return (
            query.get("type") in {None, "", item.type}
            and query.get("session_id") in {None, item.session_id}
            and query.get("base_model") in {None, item.base_model}
        )

    return json_response(page(request, service_of(request).checkpoints.records, chosen))


async def get_checkpoint(request: Request) -> Response:
    """Show a checkpoint."""
    return json_response(_found(request).to_wire())


async def download_checkpoint(request: Request) -> Response:
    """Name the files of a checkpoint, each with its size and a signed URL."""
    service, checkpoint = service_of(request), _found(request)
    variant = _variant(checkpoint, request.query_params.get("variant", ""))
    folder = service.checkpoints.folder_of(checkpoint, variant)
    if variant is CheckpointVariant.MERGED:
        await service.merge(checkpoint)
    files = sorted(path for path in folder.iterdir() if path.is_file())
    base = str(request.base_url).rstrip("/")
    listed = [
        {
            "filename": path.name,
            "size": str(path.stat().st_size),
            "url": f"{base}{FILE_PREFIX}{checkpoint.id}/{variant}/{quote(path.name)}?"
            + urlencode({"signature": service.payloads.signature(f"{checkpoint.id}/{variant}/{path.name}")}),
        }
        for path in files
    ]
    return json_response({"data": listed})


async def get_file(request: Request) -> Response:
    """Give a file, or the bytes of it that a Range header asks for."""
    service, checkpoint = service_of(request), _found(request)
    variant, filename = request.path_params["variant"], request.path_params["filename"]
    signed = f"{checkpoint.id}/{variant}/{filename}"
    if not service.payloads.matches(signed, request.query_params.get("signature", "")):
        raise Refusal(403, f"the URL of {signed!r:.200} is not signed by this service: ask for the download again")
    path = service.checkpoints.folder_of(checkpoint, CheckpointVariant(variant)) / filename
    if not path.is_file():
        raise not_found(f"file of {checkpoint.id}", filename)
    return FileResponse(path, media_type="application/octet-stream")


def _found(request: Request) -> Checkpoint:
    identifier = request.path_params["checkpoint_id"]
    found = service_of(request).checkpoints.records.get(identifier)
    if found is None:
        raise not_found("checkpoint", identifier)
    return found


def _variant(checkpoint: Checkpoint, given: str) -> CheckpointVariant:
    one_of("variant", given, CheckpointVariant)
    if checkpoint.type is not CheckpointType.INFERENCE:
        raise invalid(f"{checkpoint.id} is a training checkpoint, which is resumed from: download an inference one")
    if given == CheckpointVariant.ADAPTER and checkpoint.lora is None:
        raise invalid(f"{checkpoint.id} holds full weights and has no adapter: ask for {CheckpointVariant.MERGED}")
    return CheckpointVariant(given)
