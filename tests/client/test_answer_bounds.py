"""Answers are taken up to a size and a depth, from whatever answers: over a real socket, blocking and async."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib

import pytest
from hostile_server import OK, HostileServer, endless, whole
from service_double import MODELS, OPERATIONS, RUNNING, SESSION

import samplekit as sk

BOUND = 1_000_000
MODELS_LINE = "GET /v1/rl/supported-models"
ATTACH = {f"GET /v1/rl/training-sessions/{SESSION} ": whole(json.dumps(RUNNING).encode())}
GOOD_MODELS = {MODELS_LINE: whole(json.dumps(MODELS).encode())}
GZIP, BROTLI = OK + b"Content-Encoding: gzip\r\n", OK + b"Content-Encoding: br\r\n"
ERROR = b"HTTP/1.1 500 Oops\r\n"
LONG = sk.build_sample(range(60_001), [1] * 60_001)


@pytest.fixture
def hostile(side):
    """Give (server, client) for prepared answers."""
    opened = []

    def make(answers, **options):
        server = HostileServer(answers).__enter__()
        opened.append(server)
        options = {"base_url": server.url, "api_key": None, "transport": None, "max_answer_bytes": BOUND, **options}
        client = side.client(**options)
        opened.append(client)
        return server, client

    yield make
    for item in reversed(opened):
        item.__exit__(None, None, None)


def bomb(num_bytes):
    """Zeros, compressed a thousandfold."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = b"\0" * 1_000_000
    return b"".join(packer.compress(zeros) for _ in range(num_bytes // len(zeros))) + packer.flush()


BRACKETS = 100_000
BOMBS = {
    "closed": b"[" * BRACKETS + b"]" * BRACKETS,
    "open": b"[" * BRACKETS,
    "objects": b'{"a":' * BRACKETS + b"1" + b"}" * BRACKETS,
    "after NaN": b"[NaN," + b"[" * BRACKETS + b"]" * BRACKETS + b"]",
    "as deep as a fast parser bears": b'{"data":' + b"[" * 900 + b"]" * 900 + b"}",
    "in an object beside good data": b'{"data":[],"more":' + b"[" * 65 + b"]" * 65 + b"}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_of_brackets_is_a_named_error_at_the_first_try(hostile, name):
    server, client = hostile({MODELS_LINE: whole(BOMBS[name])})
    with pytest.raises(sk.ConnectionFailedError, match=r"list the supported models.*nests deeper than 64.*base_url"):
        client.supported_models()
    assert len(server.lines) == 1


@pytest.mark.parametrize("body", [BOMBS["closed"], BOMBS["as deep as a fast parser bears"], b"[" * BRACKETS])
def test_a_bomb_of_brackets_as_an_error_is_kept_as_text(hostile, body):
    _, client = hostile({MODELS_LINE: whole(body, ERROR)}, max_retries=0)
    with pytest.raises(sk.StatusError, match="answered 500") as caught:
        client.supported_models()
    assert caught.value.body == body.decode()


def test_an_endless_body_is_read_to_the_bound_and_no_further(hostile):
    server, client = hostile({MODELS_LINE: endless()})
    with pytest.raises(
        sk.ConnectionFailedError, match=r"larger than the 1,000,000 bytes.*1,\d{3},\d{3} bytes of it"
    ) as caught:
        client.supported_models()
    assert "max_answer_bytes" in str(caught.value)
    assert len(server.lines) == 1
    assert server.num_bytes < 64 * BOUND  # what was under way in the buffers of both ends


@pytest.mark.parametrize("head", [OK, OK + b"Content-Encoding: identity\r\n"])
def test_a_body_that_announces_too_much_is_not_read_at_all(hostile, head):
    server, client = hostile({MODELS_LINE: endless(head + b"Content-Length: 1000001\r\n")})
    with pytest.raises(
        sk.ConnectionFailedError, match=r"larger than the 1,000,000 bytes.*1,000,001 bytes are announced"
    ):
        client.supported_models()
    assert len(server.lines) == 1


def test_an_answer_of_exactly_the_bound_is_taken_and_one_byte_more_is_not(hostile):
    body = json.dumps(MODELS).encode()
    for room, taken in ((0, True), (-1, False)):
        for answer in (whole(body), lambda: [OK + b"\r\n", body]):
            _, client = hostile({MODELS_LINE: answer}, max_answer_bytes=len(body) + room)
            if taken:
                assert client.supported_models()[0].base_model == "m"
            else:
                with pytest.raises(sk.ConnectionFailedError, match="larger than"):
                    client.supported_models()


def test_a_compressed_bomb_is_dropped_before_it_fills_the_memory(hostile):
    packed = bomb(400_000_000)
    _, client = hostile({MODELS_LINE: whole(packed, GZIP)})
    assert len(packed) < BOUND
    tracemalloc.start()
    try:
        with pytest.raises(sk.ConnectionFailedError, match="larger than the 1,000,000 bytes"):
            client.supported_models()
        assert tracemalloc.get_traced_memory()[1] < 150_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("head", [BROTLI, OK + b"Content-Encoding: gzip, gzip\r\n", OK + b"Content-Encoding: zstd\r\n"])
def test_compression_that_could_grow_without_bound_is_refused(hostile, head):
    server, client = hostile({MODELS_LINE: whole(gzip.compress(bomb(1_000_000)), head)})
    with pytest.raises(sk.ConnectionFailedError, match="compressed in a way that was not asked for"):
        client.supported_models()
    assert len(server.lines) == 1


def test_an_honest_compressed_answer_is_read(hostile):
    _, client = hostile({MODELS_LINE: whole(gzip.compress(json.dumps(MODELS).encode()), GZIP)})
    assert client.supported_models()[0].base_model == "m"


def test_none_is_asked_for(side):
    side.client().supported_models()
    assert side.double.seen[0].headers["accept-encoding"] == "identity"


def test_a_huge_header_is_a_named_error(hostile):
    _, client = hostile({MODELS_LINE: endless(OK + b"X-Big: ", b"a" * 65_536)}, max_retries=0)
    with pytest.raises(sk.ConnectionFailedError, match="list the supported models"):
        client.supported_models()


@pytest.mark.parametrize("code", [b"500 Oops", b"404 No", b"302 Elsewhere\r\nLocation: http://127.0.0.1:9/"])
def test_the_endless_body_of_an_error_is_cut_and_its_status_told(hostile, code):
    server, client = hostile(
        {MODELS_LINE: endless(b"HTTP/1.1 %s\r\n" % code, b"x" * 65_536)}, max_retries=0, max_answer_bytes=10**9
    )
    with pytest.raises(sk.StatusError, match="answered") as caught:
        client.supported_models()
    assert caught.value.status == int(code[:3])
    assert len(caught.value.body) == 1024**2
    assert server.num_bytes < 64 * BOUND


@pytest.mark.parametrize(
    "head", [b"Content-Encoding: gzip\r\n", b"Content-Encoding: br\r\n", b"Content-Encoding: gzip, gzip\r\n"]
)
def test_a_compressed_bomb_as_an_error_is_cut_and_its_status_told(hostile, head):
    _, client = hostile({MODELS_LINE: whole(bomb(20_000_000), ERROR + head)}, max_retries=0)
    with pytest.raises(sk.StatusError) as caught:
        client.supported_models()
    assert len(caught.value.body) in {0, BOUND}


def test_an_unkeyed_call_whose_answer_is_too_large_has_an_unknown_outcome(hostile):
    server, client = hostile({**GOOD_MODELS, "POST /v1/rl/model-resources": endless()})
    with pytest.raises(sk.ConnectionFailedError, match=r"outcome unknown.*larger than.*max_answer_bytes"):
        client.session(base_model="m")
    assert len([line for line in server.lines if line.startswith("POST")]) == 1


def test_a_keyed_call_whose_answer_is_too_large_names_its_key(hostile):
    line = f"POST {OPERATIONS}/optim-step"
    server, client = hostile({**GOOD_MODELS, **ATTACH, line: endless()})
    with pytest.raises(sk.ConnectionFailedError, match=r"larger than.*idempotency key was [0-9a-f]{32}"):
        client.attach(SESSION).optim_step(learning_rate=1.0)
    assert len([item for item in server.lines if item.startswith(line)]) == 1


def test_a_poll_whose_answer_is_too_large_ends_the_wait(hostile):
    server, client = hostile({**GOOD_MODELS, **ATTACH, f"GET {OPERATIONS}/optim-step/op-1": endless()})
    with pytest.raises(sk.ConnectionFailedError, match=r"get optim-step operation op-1.*larger than"):
        client.attach(SESSION).operation("op-1", "optim-step").result()
    assert len([item for item in server.lines if "op-1" in item]) == 1


def payloads(server_url):
    session = f"/v1/rl/training-sessions/{SESSION}"
    url = {"payload_id": "p", "upload_url": f"{server_url}/up", "download_url": f"{server_url}/down"}
    done = {"id": "op-1", "status": "TRAINING_OPERATION_STATUS_COMPLETED", "output": {"payload_id": "p"}}
    return {
        f"POST {session}/payloads/": whole(json.dumps(url).encode()),
        f"POST {OPERATIONS}/": whole(json.dumps(done).encode()),
        "PUT /up": whole(b""),
    }


@pytest.mark.parametrize(
    ("line", "answer", "named"),
    [
        ("PUT /up", endless(), "upload payload p.*larger than"),
        ("GET /down", endless(), "download payload p.*larger than"),
        ("GET /down", whole(BOMBS["closed"]), "download payload p.*nests deeper than 64"),
    ],
)
def test_answers_of_an_object_store_are_bounded_too(hostile, line, answer, named):
    server, client = hostile({**GOOD_MODELS, **ATTACH})
    server.answers |= {**payloads(server.url), line: answer}
    with pytest.raises(sk.ConnectionFailedError, match=named):
        client.attach(SESSION).forward_backward([LONG], sk.CrossEntropy()).result()
    assert len([item for item in server.lines if item.startswith(line)]) == 1


def checkpoint(server, size, answer):
    files = {"data": [{"filename": "a.safetensors", "size": size, "url": f"{server.url}/file"}]}
    server.answers |= {"GET /v1/rl/checkpoints/c/download": whole(json.dumps(files).encode()), "GET /file": answer}


@pytest.mark.parametrize("head", [OK, OK + b"Content-Encoding: gzip\r\n"])
def test_a_file_of_a_checkpoint_is_read_to_the_size_that_was_named(hostile, tmp_path, head):
    server, client = hostile({})
    checkpoint(server, 100_000, endless(head))
    with pytest.raises(sk.ServiceError, match="more than the 100000 bytes"):
        client.download("c", tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert server.num_bytes < 64 * BOUND


def test_the_endless_error_of_an_object_store_is_cut(hostile, tmp_path):
    server, client = hostile({}, max_retries=0)
    checkpoint(server, 10, endless(b"HTTP/1.1 503 Busy\r\n"))
    with pytest.raises(sk.StatusError, match="503"):
        client.download("c", tmp_path)
    assert server.num_bytes < 64 * BOUND


def test_files_that_the_disk_cannot_hold_are_not_begun(hostile, tmp_path):
    server, client = hostile({})
    checkpoint(server, 10**18, endless())
    with pytest.raises(OSError, match=r"names 1,000,000,000,000,000,000 bytes to fetch and [\d,]+ are free"):
        client.download("c", tmp_path)
    assert not [line for line in server.lines if line.startswith("GET /file")]


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1"])
def test_a_bound_that_is_none_is_refused(side, value):
    with pytest.raises(sk.SampleError, match="max_answer_bytes"):
        side.client(max_answer_bytes=value)
