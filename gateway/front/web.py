"""What the front says over HTTP: refusals, health, status, metrics.

Every answer closes its connection: a second request on the same socket would have to be admitted by
whoever holds the socket then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import orjson

from gateway.front.admission import Refuse

__all__ = ["Response", "health", "metrics", "readiness", "refusal", "status_page"]

_TEXT = "text/plain; charset=utf-8"


@dataclasses.dataclass(frozen=True, slots=True)
class Response:
    """One HTTP/1.1 answer with a known length."""

    status: int
    body: bytes
    content_type: str = _TEXT
    headers: tuple[tuple[str, str], ...] = ()

    def encode(self) -> bytes:
        # An Upgrade header without the same word in Connection would be ignored (RFC 9110 §7.8).
        upgrade = any(name == "Upgrade" for name, _ in self.headers)
        fields = (
            ("Content-Type", self.content_type),
            ("Content-Length", str(len(self.body))),
            ("Cache-Control", "no-store"),
            ("Connection", "close, upgrade" if upgrade else "close"),
            *self.headers,
        )
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in fields]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + self.body


def refusal(refuse: Refuse) -> Response:
    return Response(refuse.status, refuse.text.encode() + b"\n", headers=refuse.headers)


def health() -> Response:
    """This process answers: no more is said without the secret."""
    return Response(200, b"ok\n")


def readiness(ready: bool) -> Response:
    return Response(200, b"ready\n") if ready else Response(503, b"not ready\n")


def status_page(status: Mapping[str, Any]) -> Response:
    return Response(200, orjson.dumps(status, option=orjson.OPT_INDENT_2) + b"\n", "application/json")


def metrics(status: Mapping[str, Any], workers: Mapping[str, Mapping[str, Any]]) -> Response:
    """Prometheus' text format, from the front's ``status`` and each worker's own."""
    # 0.1 s of import that only an instance with a scraper pays.
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

    class Snapshot(Collector):
        def collect(self) -> Iterator[Metric]:
            leader = status["leader"]
            yield GaugeMetricFamily(
                "grok_gateway_leader_ready", "1 while the leader answers.", leader.get("state") == "ready"
            )
            yield CounterMetricFamily(
                "grok_gateway_leader_starts", "Leader processes started.", leader.get("starts", 0)
            )
            counters = dict(status["counters"])
            accepted = counters.pop("accepted", 0)
            yield CounterMetricFamily("grok_gateway_accepted", "Connections accepted.", accepted)
            rescued = CounterMetricFamily(
                "grok_gateway_rescue_events", "Turns that nobody served, ended.", labels=["event"]
            )
            for event in ("rescues", "rescues_failed", "rescued_sessions"):
                rescued.add_metric([event], counters.pop(event, 0))
            yield rescued
            settled = CounterMetricFamily(
                "grok_gateway_settled", "Connections by what became of them.", labels=["outcome"]
            )
            for outcome, count in counters.items():
                settled.add_metric([outcome], count)
            yield settled
            ready = GaugeMetricFamily(
                "grok_gateway_worker_ready", "1 while the worker takes connections.", labels=["worker"]
            )
            sockets = GaugeMetricFamily(
                "grok_gateway_worker_sockets", "WebSockets of the worker.", labels=["worker"]
            )
            for seat in status["workers"]:
                ready.add_metric([seat["name"]], seat["state"] == "ready")
                sockets.add_metric([seat["name"]], seat["sockets"])
            yield from (ready, sockets)
            events = CounterMetricFamily(
                "grok_gateway_worker_events", "What the worker counted.", labels=["worker", "event"]
            )
            for name, answer in workers.items():
                for event, count in answer.get("counters", {}).items():
                    events.add_metric([name, event], count)
            yield events

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Snapshot())
    return Response(200, generate_latest(registry), CONTENT_TYPE_LATEST)
