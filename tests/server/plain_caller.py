"""Plain HTTP to one session: what the service sees, without any client between."""

import contextlib

from samplekit.wire import names as wire


class Caller:
    """Submits operations to one session and waits for them."""

    def __init__(self, http, session_id, resources_id):
        self.http = http
        self.resources_id = resources_id
        self.session_id = session_id
        self._number = 0

    def submit(self, kind, body, key=None):
        self._number += 1
        return self.http.post(
            wire.SUBMIT_OPERATION.path(session_id=self.session_id, kind=kind),
            json=body,
            headers={"Idempotency-Key": key or f"key-{self._number}"},
        )

    def wait(self, kind, operation_id):
        path = wire.GET_OPERATION.path(session_id=self.session_id, kind=kind, operation_id=operation_id)
        for _ in range(600):
            shown = self.http.get(path).json()
            if shown["status"] in wire.TERMINAL_OPERATIONS:
                return shown
        raise AssertionError(f"{kind} {operation_id} does not end")

    def run(self, kind, body, key=None):
        accepted = self.submit(kind, body, key)
        assert accepted.status_code == 200, accepted.text
        return self.wait(kind, accepted.json()["id"])

    def accumulate(self):
        """Give the next step something to apply."""
        inputs = {"target_tokens": {"data": [6, 7], "dtype": "int64"}, "weights": {"data": [1, 1], "dtype": "int64"}}
        prompt = {"chunks": [{"encoded_text": {"tokens": [5, 6]}}]}
        sample = {"model_input": prompt, "loss_fn_inputs": inputs}
        self.output("forward-backward", {"loss": {"type": "LOSS_TYPE_CROSS_ENTROPY"}, "samples": [sample]})

    def output(self, kind, body):
        shown = self.run(kind, body)
        assert shown["status"] == wire.OperationStatus.COMPLETED, shown
        return shown["output"]


def open_plain(http, *, lora=None, **resources):
    """Open a session on resources of its own; full weights unless a lora_config is given."""
    body = {"base_model": "samplekit/tiny", "lora_enabled": lora is not None, **resources}
    identifier = http.post(wire.CREATE_RESOURCES.path(), json=body).json()["id"]
    request = {"model_resources_id": identifier, **({"lora_config": lora} if lora else {})}
    shown = http.post(wire.CREATE_SESSION.path(), json=request).json()
    while shown["status"] == wire.SessionStatus.CREATING:  # behind the work of other sessions
        shown = http.get(wire.GET_SESSION.path(session_id=shown["id"])).json()
    assert shown["status"] == wire.SessionStatus.RUNNING, shown
    return Caller(http, shown["id"], identifier)


@contextlib.contextmanager
def opened_session(http, **options):
    """Open a session as `open_plain` does, and stop it and its resources afterwards."""
    session = open_plain(http, **options)
    yield session
    http.post(wire.STOP_RESOURCES.path(resources_id=session.resources_id), params={"force": "true"})
