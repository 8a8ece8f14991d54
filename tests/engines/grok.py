"""What the real engine needs to run with no login and no network: a GROK_HOME of its own."""

from __future__ import annotations

from pathlib import Path

__all__ = ["MODEL", "SECOND_MODEL", "write_offline_config"]

#: ACP model ids (the names of the tables) of the two models.
MODEL, SECOND_MODEL = "scripted", "scripted-two"

_CONFIG = """\
[cli]
auto_update = false

[features]
telemetry = false
feedback = false
remote_fetch = false
managed_config = false
codebase_indexing = false

[telemetry]
trace_upload = false
mixpanel_enabled = false

[models]
default = "{model}"

[model.{model}]
model = "scripted-1"
name = "Scripted"
base_url = "{url}"
api_key = "none-needed"
context_window = 200000
api_backend = "chat_completions"

[model.{second}]
model = "scripted-2"
name = "Scripted two"
base_url = "{url}"
api_key = "none-needed"
context_window = 100000
api_backend = "chat_completions"
supports_reasoning_effort = true
reasoning_effort = "medium"
"""


def write_offline_config(home: Path, url: str) -> None:
    """Create ``home`` with a config.toml whose models live at ``url`` only, and with nobody logged in."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = _CONFIG.format(model=MODEL, second=SECOND_MODEL, url=url)
    (home / "config.toml").write_text(text, "utf-8")
    (home / "auth.json").write_text("{}", "ascii")  # without it each `initialize` takes 100 ms more
