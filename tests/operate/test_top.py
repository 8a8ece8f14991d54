"""``top``: what is shown for which status."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from gateway.operate.top import Load, Meter, view

CLIENT = {
    "id": "c" * 32,
    "client": "pi",
    "worker": "worker:worker_00",
    "state": "attached",
    "sessions": ["a"],
}
DOCUMENT: dict[str, Any] = {
    "engine": "grok",
    "endpoint": "ws://127.0.0.1:1/ws",
    "components": [
        {"name": "gateway", "state": "RUNNING", "pid": 11, "restarts": 0},
        {"name": "worker:worker_00", "state": "HUNG", "pid": 12, "restarts": 3, "reason": "no [answer]"},
    ],
    "leader": {"state": "ready", "pid": 13},
    "clients": [{**CLIENT, "gates": 2, "requests": 3, "sent": 40, "received": 8}],
}


def text(document: dict[str, Any], loads: dict[int, Load], rates: dict[str, float]) -> list[str]:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(view(document, loads, rates))
    return console.export_text().splitlines()


def line(lines: list[str], word: str) -> str:
    return next(line for line in lines if word in line)


def test_components_with_their_load_and_clients_with_their_rate() -> None:
    lines = text(DOCUMENT, {11: Load(12.4, 20 * 2**20)}, {CLIENT["id"]: 3.6})
    assert line(lines, "gateway ").split() == ["gateway", "RUNNING", "11", "12", "%", "20", "MiB", "0"]
    assert "no [answer]" in line(lines, "worker_00 ")
    assert "HUNG" in line(lines, "worker:worker_00")
    assert line(lines, "leader").split()[:3] == ["leader", "ready", "13"]
    assert line(lines, "pi ").split() == ["pi", "attached", "1", "3", "2", "40", "8", "4"]


def test_a_gateway_that_stopped_is_shown_empty() -> None:
    gone = {**DOCUMENT, "components": [], "clients": [], "leader": {"reason": "not running"}}
    assert "not running" in line(text(gone, {}, {}), "leader")


def document(**totals: int) -> dict[str, Any]:
    return {"clients": [{"id": name, "sent": total, "received": 1} for name, total in totals.items()]}


def test_rates_need_two_looks_at_the_same_client() -> None:
    meter = Meter()
    assert meter.rates(document(a=10), 5.0) == {}
    assert meter.rates(document(a=30, b=5), 7.0) == {"a": 10.0}
    assert meter.rates(document(a=30, b=5), 7.0) == {}
    assert meter.rates(document(b=25), 9.0) == {"b": 10.0}


def test_a_total_that_went_back_gives_no_rate() -> None:
    meter = Meter()
    meter.rates(document(a=10), 1.0)
    assert meter.rates(document(a=2), 2.0) == {}
