"""Results of many operations: memory is bounded, and every result stays what it was."""

import asyncio
import tracemalloc

import httpx
import pytest
from plain_caller import opened_session

from samplekit.server import LocalService
from samplekit.server.outcomes import Outcomes
from samplekit.server.payloads import PayloadStore
from samplekit.server.records import Operation, Outcome
from samplekit.wire.names import GET_OPERATION, OperationKind, OperationStatus


def ended(number, output):
    operation = Operation(f"op-{number}", OperationKind.SAMPLE, f"key-{number}", b"", None)
    operation.end(Outcome(OperationStatus.COMPLETED, output))
    return operation


def output_of(kept, operation):
    return kept.read(operation) if operation.outcome.output is None else operation.outcome.output


@pytest.mark.parametrize(("most", "size", "held"), [(100, 10**9, 100), (10**9, 50_000, 50), (3, 2_500, 2), (9, 10, 0)])
def test_no_more_is_in_memory_than_a_count_and_a_size(tmp_path, most, size, held):
    kept = Outcomes(PayloadStore(tmp_path), None, max_outcomes=most, max_bytes=size)
    operations = [ended(number, b"%0*d" % (1000, number)) for number in range(2000)]
    for operation in operations:
        kept.keep(operation)
        assert kept.num_held <= most
        assert kept.num_bytes <= size
    assert kept.num_held == sum(item.outcome.output is not None for item in operations) == held
    assert kept.num_bytes == 1000 * held
    assert [output_of(kept, item) for item in operations] == [b"%0*d" % (1000, number) for number in range(2000)]


def test_little_is_kept_for_ever_of_an_operation_that_ended():
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        operations = [ended(number, None) for number in range(1000)]
        assert (tracemalloc.get_traced_memory()[0] - before) / len(operations) < 700  # bytes
    finally:
        tracemalloc.stop()
    assert all(item.status is OperationStatus.COMPLETED for item in operations)


def test_all_who_wait_for_an_operation_hear_that_it_ended():
    async def check():
        operation = Operation("op", OperationKind.SAMPLE, "key", b"", None)
        waiting = [asyncio.create_task(operation.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting.pop().cancel()
        operation.end(Outcome(OperationStatus.COMPLETED))
        await asyncio.gather(*waiting, operation.wait())

    asyncio.run(asyncio.wait_for(check(), 10))


def test_what_cannot_be_written_stays_in_memory(tmp_path, caplog):
    folder = tmp_path / "gone"
    kept = Outcomes(PayloadStore(folder), None, max_outcomes=1)
    (folder / "secret").unlink()
    folder.rmdir()
    operations = [ended(number, b'{"a":1}') for number in range(3)]
    for operation in operations:
        kept.keep(operation)
    assert "stay in memory" in caplog.text
    assert [item.outcome.output for item in operations] == [b'{"a":1}'] * 3


@pytest.mark.parametrize("on_disk", [False, True])
def test_results_that_left_memory_are_answered_as_before(loaded, forward_body, make_samples, tmp_path, on_disk):
    state_dir = tmp_path / "state" if on_disk else None
    body = forward_body(make_samples([5, 9]), forward_only=True, return_loss_fn_outputs=True)
    with LocalService(model=loaded, state_dir=state_dir) as service, httpx.Client(base_url=service.url) as http:
        service.service.outcomes._max_outcomes = 2
        with opened_session(http) as session:
            shown = [session.run("forward-backward", body) for _ in range(8)]
            assert service.service.outcomes.num_held == 2
            assert all("logprobs" in str(item["output"]) for item in shown)
            assert [session.wait("forward-backward", item["id"]) for item in shown] == shown
            again = [session.submit("forward-backward", body, f"key-{number + 1}").json() for number in range(8)]
            assert again == shown
    if on_disk:
        with LocalService(model=loaded, state_dir=state_dir) as service, httpx.Client(base_url=service.url) as http:
            assert service.service.outcomes.num_held == 0
            for item in shown:
                path = GET_OPERATION.path(
                    session_id=session.session_id, kind="forward-backward", operation_id=item["id"]
                )
                assert http.get(path).json() == item
