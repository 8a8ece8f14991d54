"""The one list of what may differ between two plays of a scenario, and why.

A rule names a kind of message, a path in it and a treatment.  Everything that no rule names is compared value
by value.  Paths are keys separated by blanks; ``*`` is any one key or place, ``**`` any number of them.

=========== ====================================================================================
DROPPED     not compared
TYPED       it must be there and be of the same type
WORDED      a text in own words: its data and facts are compared (`texts`)
UNORDERED   a list whose entries have no order of their own: compared in the order of their commands
FLOOD       a text whose length is a matter of time: its distinct lines, numbers left out
CONFIGURED  of a list only the entries that this test configured, or of tools those in `TOOLS`
=========== ====================================================================================

Kinds: the method of a notification or request, with ``/`` and the kind of its update; ``result METHOD`` and
``error METHOD`` for answers; ``model KIND`` for requests at the model's endpoint.
"""

from __future__ import annotations

import dataclasses
import enum
import fnmatch
import functools

__all__ = [
    "ASYNCHRONOUS",
    "DISTINCT",
    "FOREIGN_CALLS",
    "FOREIGN_PHASES",
    "OPENING",
    "REPEATED",
    "RULES",
    "TOOLS",
    "Rule",
    "Treatment",
    "treatment",
]


class Treatment(enum.Enum):
    DROPPED = "dropped"
    TYPED = "typed"
    WORDED = "worded"
    FLOOD = "flood"
    UNORDERED = "unordered"
    CONFIGURED = "configured"


@dataclasses.dataclass(frozen=True)
class Rule:
    kind: str
    path: str
    treatment: Treatment
    reason: str


_D, _T, _W = Treatment.DROPPED, Treatment.TYPED, Treatment.WORDED
_C, _U = Treatment.CONFIGURED, Treatment.UNORDERED
_CLOCK = "reads the clock"
_WORDS = "a text for people or the model; each engine has its own words"
_SUBAGENTS = "subagents come later"
_ESTIMATE = "counts the engine's own system prompt and tool texts, which are worded differently"

_BOUND = "the original refuses negative numbers here without saying so in the schema"
_COUNTS = (
    "read_file function parameters properties limit",
    *(f"grep function parameters properties {name}" for name in ("-A", "-B", "-C", "head_limit")),
)
#: Variants of a tool's output that hold nothing but a sentence.
_REFUSALS = (
    *("NotFound", "IsAFile", "NotADirectory", "PermissionDenied", "InvalidInput", "MultipleMatchesFound"),
    *(
        "FileNotFound",
        "IsADirectory",
        "FileTooLarge",
        "FileReadError",
        "FilenameTooLong",
        "FileAlreadyExists",
    ),
    *("TaskNotFound", "NotKilled", "DuplicateId", "Error"),
)

RULES = (
    # -- clocks and processes --------------------------------------------------------------------
    Rule("*", "** agentTimestampMs", _T, _CLOCK),
    Rule("*", "** streamStartMs", _T, _CLOCK),
    Rule("*", "** turnStartMs", _T, _CLOCK),
    Rule("*", "** lastChangeUnixMs", _T, _CLOCK),
    Rule("*", "** apiDurationMs", _T, _CLOCK),
    Rule("*", "** elapsed_ms", _T, _CLOCK),
    Rule("*", "** elapsedMs", _T, _CLOCK),
    Rule("*", "** durationMs", _T, _CLOCK),
    Rule("*", "** duration_secs", _T, _CLOCK),
    Rule("*", "** start_time *", _T, _CLOCK),
    Rule("*", "** end_time *", _T, _CLOCK),
    Rule("*", "** started_at", _T, _CLOCK),
    Rule("*", "** ended_at", _T, _CLOCK),
    Rule("*", "** started", _T, _CLOCK),
    Rule("*", "** ended", _T, _CLOCK),
    Rule("*", "** timestamp", _T, _CLOCK),
    Rule("*", "** updatedAt", _T, _CLOCK),
    Rule("*", "** pid", _T, "the operating system chooses it"),
    Rule("*", "** eventId", _T, "numbers all updates of a session, those that come at any time among them"),
    Rule("session/update/*", "** totalTokens", _T, _ESTIMATE),
    # -- what the program is ---------------------------------------------------------------------
    Rule("result initialize", "result _meta agentVersion", _T, "each engine has its own version"),
    Rule(
        "result initialize", "result _meta availableCommands", _D, "slash commands belong to product features"
    ),
    Rule("result initialize", "result authMethods * description", _W, _WORDS),
    Rule("result initialize", "result authMethods 1", _D, "the sign-in to the original's maker"),
    Rule(
        "result initialize",
        "result agentCapabilities _meta x.ai/fs_notify",
        _D,
        "the interface's file watching",
    ),
    Rule("result initialize", "result agentCapabilities _meta x.ai/hooks blockingEvents 2", _D, _SUBAGENTS),
    Rule(
        "result initialize",
        "result agentCapabilities _meta x.ai/capabilities",
        _D,
        "searches at the maker's site",
    ),
    Rule("result initialize", "result _meta grokShell", _D, "the name of the original's program"),
    Rule("result initialize", "result _meta x.ai/mcp/sdk", _D, "servers inside of a client are not offered"),
    Rule("result initialize", "result _meta mcpServers", _D, "servers of its own configuration"),
    Rule("result initialize", "result _meta mcpApps", _D, "a switch of the original's interface"),
    Rule("result initialize", "result _meta x.ai/pluginDirs", _D, "plugins are a feature of the product"),
    Rule("result initialize", "result _meta agentId", _D, "belongs to the maker's account"),
    Rule("result initialize", "result _meta metadata", _D, "belongs to the maker's account"),
    Rule("result initialize", "result _meta cancelRewind", _D, "a switch of the original's interface"),
    Rule("result initialize", "result _meta sessionRecap", _D, "a switch of the original's interface"),
    Rule("result initialize", "result _meta feedbackTraceOffer", _D, "a switch of the original's interface"),
    Rule("result initialize", "result _meta voiceMode", _D, "a switch of the original's interface"),
    Rule("result *", "result _meta codebaseIndexed", _D, "an index at the maker's servers"),
    Rule("result *", "result _meta showNonGitWarning", _D, "a switch of the original's interface"),
    Rule("result *", "result _meta feedbackEnabled", _D, "a switch of the original's interface"),
    Rule("result *", "result _meta x.ai/memoryMode", _D, "memory comes later"),
    Rule(
        "result *", "result _meta x.ai/sessionConfig options", _C, "the original adds the models of its maker"
    ),
    Rule("session/update/available_commands_update", "params update _meta tools", _C, "see TOOLS"),
    Rule(
        "session/update/available_commands_update",
        "params _meta",
        _D,
        "said again whenever a discovery ends, in a turn or not: the stamps of that moment",
    ),
    Rule("result *", "** availableModels", _C, "the original adds the models of its maker"),
    Rule(
        "session/update/available_commands_update",
        "params update availableCommands",
        _D,
        "slash commands belong to product features",
    ),
    Rule("result *", "** configOptions * options", _C, "the original adds the models of its maker"),
    Rule("result _x.ai/task/list", "result result tasks", _U, "the original keeps its tasks in a hash table"),
    Rule("_x.ai/session_notification/background_tasks", "params update tasks", _U, "the same table"),
    # -- words -----------------------------------------------------------------------------------
    Rule("_x.ai/hooks/event", "params message", _W, _WORDS),
    Rule("session/update/tool_call_update", "params update content * content text", _W, _WORDS),
    Rule("session/update/tool_call_update", "params update rawOutput output_for_prompt", _W, _WORDS),
    Rule("session/update/tool_call_update", "params update rawOutput ** tool_output_for_prompt", _W, _WORDS),
    Rule(
        "session/update/tool_call_update",
        "params update rawOutput ** tool_output_for_prompt_concise",
        _W,
        _WORDS,
    ),
    Rule("session/update/tool_call_update", "params update rawOutput ** message", _W, _WORDS),
    Rule("session/update/tool_call_update", "params update rawOutput summary", _W, _WORDS),
    Rule("session/update/tool_call_update", "params update rawOutput retrieval_hint", _W, _WORDS),
    Rule("session/update/tool_call_update", "params update rawOutput ** truncation_hint", _W, _WORDS),
    *(
        Rule("session/update/tool_call_update", f"params update rawOutput {name}", _W, _WORDS)
        for name in _REFUSALS
    ),
    Rule(
        "session/update/tool_call_update",
        "params update rawOutput stdout",
        _W,
        "what the model reads of a search",
    ),
    Rule("session/update/tool_call_update", "params update rawOutput Result output", _W, _WORDS),
    Rule(
        "session/update/tool_call_update", "params update rawOutput MultiResult results * output", _W, _WORDS
    ),
    Rule("session/update/tool_call_update", "params update rawOutput MultiResult summary", _W, _WORDS),
    Rule("session/request_permission", "params options * name", _W, _WORDS),
    Rule("_x.ai/queue/changed", "params runningText", _W, _WORDS),
    Rule("_x.ai/queue/changed", "params entries * text", _W, _WORDS),
    Rule("_x.ai/session_notification/retry_state", "params update reason", _W, _WORDS),
    Rule("_x.ai/session_notification/hook_annotation", "params update message", _W, _WORDS),
    Rule("_x.ai/session_notification/retry_state", "params update message", _W, _WORDS),
    Rule("_x.ai/session_notification/turn_completed", "params update agent_result", _W, _WORDS),
    Rule("_x.ai/session/prompt_complete", "params agentResult", _W, _WORDS),
    Rule("_x.ai/session_notification/hook_execution", "params update runs * status error", _W, _WORDS),
    Rule(
        "session/update/tool_call_update", "params update rawOutput Entered tool_hints task", _D, _SUBAGENTS
    ),
    Rule("error *", "error message", _W, _WORDS),
    Rule("error *", "error data", _W, _WORDS),
    Rule("error *", "error data message", _W, _WORDS),
    # -- the model's side ------------------------------------------------------------------------
    Rule("model *", "headers", _D, "transport of an HTTP library; the key is compared apart"),
    *(Rule("model turn", f"body tools {place} minimum", _D, _BOUND) for place in _COUNTS),
    Rule("model *", "body messages * model_id", _D, "no field of the protocol: strict endpoints refuse it"),
    Rule("model *", "body messages * content", _W, _WORDS),
    Rule("model *", "body tools ** description", _D, _WORDS),
    Rule(
        "model *",
        "body tools read_file function parameters properties pages",
        _D,
        "pages of PDF files come later",
    ),
    Rule(
        "model *",
        "body tools read_file function parameters properties format",
        _D,
        "pages of PDF files come later",
    ),
)

#: Updates that come from beside the turn, at any time: compared in an order of their own.
ASYNCHRONOUS = {
    "_x.ai/mcp/servers_updated": "when a client initializes",
    "_x.ai/mcp_initialized": "when the last server is connected",
    "_x.ai/session/setup": "progress of session/new; the last phases come after its answer",
    "session/update/available_commands_update": "whenever discovery of commands ends",
    "_x.ai/session_notification/session_summary_generated": "the title's own model call",
    "session/update/session_info_update": "the title's own model call",
    "_x.ai/task_completed/task_completed": "from the watcher of a process, beside the turn",
    "_x.ai/session_notification/background_tasks": "from the same watcher",
    "_x.ai/sessions/changed": "to every client, by a task of its own",
}

#: What opens every play in the same way: compared in the scenario of that name, and in no other.
OPENING = frozenset(
    {
        "result initialize",
        "result session/new",
        "_x.ai/mcp/servers_updated",
        "_x.ai/mcp_initialized",
        "_x.ai/session/setup",
        "session/update/available_commands_update",
    }
)

#: Model calls that are not compared.
FOREIGN_CALLS = {
    "model title": "asks a model of the original's maker for a title, which no client is told in these plays",
}

#: Lines that come again and again while something runs, as time allows: which of them are compared.
REPEATED = {
    "session/update/tool_call_update": "one for each tenth of a second that a command runs, each with all "
    "the output so far: the last one before the result and the last one after it",
}

#: Lines that repeat themselves: one of each is compared.
DISTINCT = {
    "session/update/available_commands_update": "said again whenever one of several discoveries ends",
}

#: Phases of `_x.ai/session/setup` whose work the embedded engine has not (see `RULES` for those features).
FOREIGN_PHASES = frozenset({"folder_trust", "plugin_registry", "mcp_merge", "tool_overrides"})

#: Tools whose definitions are compared.  The others belong to features that the embedded engine has not.
TOOLS = frozenset(
    {
        *("run_terminal_command", "get_command_or_subagent_output", "kill_command_or_subagent", "monitor"),
        *("read_file", "search_replace", "write", "list_dir", "grep"),
        *("todo_write", "enter_plan_mode", "exit_plan_mode", "ask_user_question"),
    }
)


@functools.lru_cache(None)
def _of_kind(kind: str, own: tuple[Rule, ...]) -> tuple[tuple[tuple[str, ...], Rule], ...]:
    return tuple((tuple(r.path.split()), r) for r in (*own, *RULES) if fnmatch.fnmatchcase(kind, r.kind))


@functools.lru_cache(1 << 16)
def treatment(kind: str, path: tuple[str, ...], own: tuple[Rule, ...] = ()) -> Rule | None:
    """The rule for a place in a message; ``own`` are the scenario's."""
    for pattern, rule in _of_kind(kind, own):
        if _fits(pattern, path):
            return rule
    return None


def _fits(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_fits(pattern[1:], path[i:]) for i in range(len(path) + 1))
    return bool(path) and pattern[0] in ("*", path[0]) and _fits(pattern[1:], path[1:])
