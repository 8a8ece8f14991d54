"""The front's answers, byte for byte."""

from __future__ import annotations

import http.client
import io
import json
from typing import Any

import pytest

from gateway.front.admission import Refuse, no_worker
from gateway.front.web import Response, health, metrics, readiness, refusal, status_page


class _Wire(io.BytesIO):
    def makefile(self, mode: str) -> _Wire:
        return self

    def close(self) -> None:
        pass


def parsed(response: Response) -> tuple[http.client.HTTPResponse, bytes]:
    """As the standard library's client reads it."""
    wire = _Wire(response.encode())
    answer = http.client.HTTPResponse(wire)  # type: ignore[arg-type]
    answer.begin()
    body = answer.read()
    assert wire.read() == b"", "nothing follows the announced length"
    return answer, body


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 408, 410, 421, 426, 431, 503])
def test_refusals_are_whole_answers_that_close(status: int) -> None:
    answer, body = parsed(refusal(Refuse(status, "What to do: schön.", (("X-More", "y"),))))
    assert answer.status == status
    assert answer.reason
    assert answer.getheader("Connection") == "close"
    assert answer.getheader("X-More") == "y"
    assert answer.getheader("Content-Type") == "text/plain; charset=utf-8"
    assert body.decode() == "What to do: schön.\n"


def test_a_server_that_asks_for_an_upgrade_says_so_twice() -> None:
    answer, _ = parsed(refusal(Refuse(426, "x", (("Upgrade", "websocket"),))))
    assert answer.getheader("Upgrade") == "websocket"
    assert answer.getheader("Connection") == "close, upgrade"


def test_retry_after() -> None:
    answer, body = parsed(refusal(no_worker()))
    assert answer.getheader("Retry-After") == "1"
    assert b"grok-gateway status" in body


def test_health_and_readiness_tell_nothing_more() -> None:
    assert parsed(health())[1] == b"ok\n"
    assert (readiness(True).status, readiness(True).body) == (200, b"ready\n")
    assert (readiness(False).status, readiness(False).body) == (503, b"not ready\n")


STATUS: dict[str, Any] = {
    "leader": {"state": "backoff", "starts": 3},
    "workers": [{"name": "worker_00", "pid": 1, "state": "draining", "sockets": 2}],
    "counters": {"accepted": 5, "refused_401": 4, "rescues": 2},
}


def test_status_is_json() -> None:
    answer, body = parsed(status_page(STATUS))
    assert answer.getheader("Content-Type") == "application/json"
    assert json.loads(body) == STATUS


def test_metrics() -> None:
    answer, body = parsed(metrics(STATUS, {"worker_00": {"counters": {"taken_ws": 7}}, "worker_01": {}}))
    assert (answer.getheader("Content-Type") or "").startswith("text/plain; version=")
    samples = dict(line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#"))
    assert samples == {
        "grok_gateway_leader_ready": "0.0",
        "grok_gateway_leader_starts_total": "3.0",
        "grok_gateway_accepted_total": "5.0",
        'grok_gateway_rescue_events_total{event="rescues"}': "2.0",
        'grok_gateway_rescue_events_total{event="rescues_failed"}': "0.0",
        'grok_gateway_rescue_events_total{event="rescued_sessions"}': "0.0",
        'grok_gateway_settled_total{outcome="refused_401"}': "4.0",
        'grok_gateway_worker_ready{worker="worker_00"}': "0.0",
        'grok_gateway_worker_sockets{worker="worker_00"}': "2.0",
        'grok_gateway_worker_events_total{event="taken_ws",worker="worker_00"}': "7.0",
    }
