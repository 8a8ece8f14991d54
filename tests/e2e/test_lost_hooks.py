"""A hook that falls into the gap between two bridges, on the real engine: its tool must never run."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.e2e.client import SILENT, allow_everything
from tests.e2e.gateway import Gateway
from tests.engines.scripted_model import ScriptedModel, steps

pytestmark = pytest.mark.grok

HOOKS = {"x.ai/hooks": {"pre_tool_use": [{"hookCallbackIds": ["pre"], "timeout": 600}]}}


async def test_a_hook_asked_while_nobody_drove_is_found_and_its_turn_cancelled(
    real: Gateway, model: ScriptedModel
) -> None:
    """The worker is stopped dead with its bridge, the model calls a tool, the client comes back."""
    client, bridge = await real.with_own_worker(
        lambda m: SILENT if m["method"] == "_x.ai/hooks/run" else allow_everything(m)
    )
    session = await client.new_session(real.work, **HOOKS)
    marker = real.work / "marker"
    tool = {"name": "run_terminal_command", "args": {"command": f"touch {marker}", "description": "t"}}
    gate = f"gate-{session}"
    script = steps({"text": "before ", "gate": gate, "gate_after": 1, "tools": [tool]}, {"text": "after"})
    await client.start_prompt(session, script)
    await model.waiting(gate)
    worker = real.workers()[real.worker_of(bridge)]
    os.kill(worker, signal.SIGKILL)  # its bridge dies with it
    await real.gone(worker, bridge)
    model.release(gate)  # the hook goes to nobody
    await asyncio.sleep(0.5)
    again = await real.connect(client.policy, resume=client)
    number = int(next(iter(again.unanswered)))
    assert (await again.answer_to(again.again(number)))["stopReason"] in real.ends_without_a_judge
    assert not again.asked
    (listed,) = (await real.status())["clients"]
    # Not a rescue, nor the hook's own end.  The embedded engine has no hook that nobody was asked.
    assert listed["counters"].get("lost_hooks", 0) == (0 if real.embedded else 1)
    assert not marker.exists()
    again.policy = allow_everything
    assert (await again.prompt(session, steps({"text": "alive"})))["stopReason"] == "end_turn"
    assert not marker.exists()
    await again.close()
