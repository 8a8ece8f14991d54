"""The engine's one table of limits: every number of seconds and every bound in bytes or items.

Nothing else in ``harness`` holds such a number.  A row says its unit in its class and its reason beside
it; figures without a reason of our own are the original's (grok 1.0.41), kept so that a model trained on
it meets the same bounds.
"""

from __future__ import annotations

__all__ = ["LIMITS", "SIZES", "EngineLimits", "EngineSizes"]


# Plain classes: a bridge must be connected within a tenth of a second, and `dataclasses` alone takes a
# third of that to import.


def _row(default: float, reason: str) -> float:
    return default


def _size(default: int, reason: str) -> int:
    return default


class EngineLimits:
    """Seconds, all of them."""

    # -- registry, bridge, reminders -----------------------------------------------------------------
    short_lived: float = _row(1, "a signalled command that lived less may have been hit by its own pkill")

    # -- workspace -----------------------------------------------------------------------------------
    vcs: float = _row(30, "a git command on a large checkout with a cold cache; then it counts as stuck")
    containment_probe: float = _row(5, "bwrap starts in 10 ms; on a loaded machine it may take a second")
    vcs_terminate: float = _row(1, "TERM to KILL: git removes its lock files in milliseconds")
    path_hints: float = _row(0.1, "looking for what a wrong path may have meant; the model waits for it")

    # -- terminal, tasks, monitor --------------------------------------------------------------------
    command_default: float = _row(120, "of a foreground command that names no time limit")
    command_ceiling: float = _row(36_000, "the longest foreground limit a model may name")
    command_longest: float = _row(36_000, "nothing that a model started runs longer")
    command_foreground: float = _row(300, "blocks a turn at most so long where nothing can be moved away")
    command_block: float = _row(15, "then a foreground command goes on in the background")
    output_chunk: float = _row(0.1, "pause between two looks of a client at a running output")
    output_drain: float = _row(2, "a child of an ended command may still hold its pipe")
    end_told: float = _row(0.01, "the answer that waited for an end goes out before everybody is told")
    kill_grace: float = _row(1, "TERM to KILL for a command and all it started")
    kill_reap: float = _row(5, "a process that the kernel does not give up is left to it")
    kill_look: float = _row(0.02, "pause between two looks for what is still alive")
    login_shell: float = _row(5, "a login shell that takes longer is not waited for")
    task_kept: float = _row(300, "an ended task with its output; then only what it was")
    wait_default: float = _row(30, "a wait that names no limit")
    wait_longest: float = _row(3_600, "a single wait for tasks")
    monitor_longest: float = _row(36_000, "a monitor that is not persistent")
    monitor_tick: float = _row(0.2, "lines of one tick are one event")
    monitor_refill: float = _row(2, "one more event may wake its owner")
    monitor_stop: float = _row(30, "of suppression without a pause; then the monitor ends")

    # -- file tools ----------------------------------------------------------------------------------
    search: float = _row(20, "a search of a whole checkout; longer means that the pattern or the disk is bad")
    compat_command: float = _row(600, "the longest limit of a command in the compatibility family")
    question: float = _row(1800, "a person who is asked something may be away for half an hour")

    # -- model, session, agent -----------------------------------------------------------------------
    model_connect: float = _row(20, "a connection to a model endpoint; a local one takes a millisecond")
    model_idle: float = _row(
        600, "without a byte of the answer: a large model thinks that long, a dead one for ever"
    )
    retry_first: float = _row(2, "before a broken model call is made again; the pauses double")
    retry_last: float = _row(30, "the longest pause between two tries")
    retry_after_most: float = _row(120, "a server that asks for more is not waited for; the user may decide")
    agent_close: float = _row(10, "sessions end their commands; one that ignores TERM is killed within this")
    cancel_settle: float = _row(2, "tools that were told to stop may clean up; afterwards they are let go")

    # -- leader, bridge ------------------------------------------------------------------------------
    leader_connect: float = _row(5, "connect and register; a leader that lives needs a millisecond")
    leader_spawn: float = _row(10, "a leader that was started is there in a second, on a cold disk in three")
    leader_poll: float = _row(0.02, "pause between two looks for a leader that starts")
    leader_lock: float = _row(15, "the holder of the lock may be about to bind its socket")
    leader_register: float = _row(30, "a client says who it is at once")
    leader_close: float = _row(5, "turns are cancelled and commands killed when the leader ends")
    bridge_flush: float = _row(1, "what a client wrote last, a cancel perhaps, still reaches the leader")
    leader_write: float = _row(30, "a client that takes nothing for so long is dropped")
    relay_look: float = _row(1, "a bridge without work looks whether a replay takes too long")
    reconnect_first: float = _row(1, "between two tries to find the leader again; the pauses double")
    reconnect_last: float = _row(30, "the longest of these pauses")
    replay: float = _row(60, "a session that is loaded again, of any length")

    # -- sessions on disk ----------------------------------------------------------------------------
    session_lock: float = _row(5, "a process that ends may have a session open while its commands are ended")
    session_look: float = _row(0.05, "pause between two tries for it")

    # -- permissions, hooks --------------------------------------------------------------------------
    hook_pre: float = _row(30, "a hook before a tool that names no time limit; afterwards the tool is denied")
    hook_post: float = _row(60, "a hook after a tool; the turn waits for it and then goes on without")
    hook_stop: float = _row(600, "a hook at the end of a turn may run a whole test suite")
    hook_longest: float = _row(600, "the longest limit a client may name for one of its hooks")
    grants_lock: float = _row(5, "another session writes remembered grants; a slow disk needs 100 ms for it")
    grants_look: float = _row(0.01, "pause between two tries for the lock of the grants")

    # -- MCP servers ---------------------------------------------------------------------------------
    mcp_startup: float = _row(30, "start, handshake and list of tools of a server whose client names no time")
    mcp_call: float = _row(6_000, "a call of a server's tool, which may wait for a person")
    mcp_longest: float = _row(86_400, "the longest time that a client may name for one of its servers")
    mcp_turn: float = _row(3, "a turn waits for servers that still connect; slower ones come later")
    mcp_connect: float = _row(10, "a connection to a server; a local one takes a millisecond")
    mcp_notice: float = _row(2, "what a server is told and need not answer: a cancel, an answer to its ping")
    mcp_goodbye: float = _row(1, "telling an HTTP server that its session is over")
    mcp_eof: float = _row(1, "a server's process ends by itself when its input is closed")
    mcp_terminate: float = _row(1, "TERM to KILL, and KILL to its end, for a server's process and its group")
    mcp_settle: float = _row(2, "a stream that lived longer was a good one: the pauses start anew")
    mcp_gather: float = _row(0.1, "several changes of a server's tools are read as one")
    mcp_listen_first: float = _row(0.5, "before a server's own stream is opened again; the pauses double")
    mcp_listen_last: float = _row(30, "the longest of these pauses")


class EngineSizes:
    """Bytes, characters, lines or items; the reason says which."""

    # -- registry, bridge, reminders -----------------------------------------------------------------
    tool_output: int = _size(40_000, "bytes of one result for the model, whatever tool made it")
    completion_inline: int = _size(4_000, "bytes of a finished command told without a retrieval tool")
    completion_preview: int = _size(2_000, "bytes of output in such a telling; the log has the rest")
    echoed_arguments: int = _size(4_000, "characters of wrong arguments that the model is shown again")
    explained: int = _size(4_000, "characters of one projection in the record of an explained call")
    mcp_output: int = _size(20_000, "bytes of an MCP tool's result")
    mcp_description: int = _size(2_048, "characters of a description that a foreign server wrote")
    skill_entry: int = _size(400, "bytes of one skill in the listing")
    skill_description_floor: int = _size(20, "bytes; a shorter description says nothing, the name alone does")
    skill_listing_unknown: int = _size(400_000, "characters, where the model's window is not known")
    skill_listing_per_token: int = _size(
        2, "characters for each token of the window: half of it at 4 a token"
    )

    # -- workspace -----------------------------------------------------------------------------------
    instructions: int = _size(1 << 20, "bytes of one file of project rules or of a skill")
    skill_name: int = _size(64, "characters of a skill's name")
    untracked_file: int = _size(1 << 20, "bytes of an untracked file whose lines a diff counts")
    git_pointer: int = _size(8 << 10, "bytes of a .git file or a commondir: one path")
    git_config: int = _size(1 << 20, "bytes of a git configuration file")
    ignore_file: int = _size(4 << 20, "bytes of a .gitignore; generated ones reach a few hundred kB")
    vcs_output: int = _size(16 << 20, "bytes of a status or diff; more is cut and said to be")
    vcs_complaint: int = _size(64 << 10, "bytes of what a program says on its error output")
    pipe_read: int = _size(64 << 10, "bytes; what a pipe holds")
    path_similar: int = _size(3, "names suggested for a missing file")
    path_component: int = _size(255, "bytes of one name; no common filesystem takes more")
    rewind_preview: int = _size(60, "characters of a prompt shown for a rewind point")
    diff_cells: int = _size(4_000_000, "pairs of lines; comparing more takes longer than a second")
    hunk_file: int = _size(4 << 20, "bytes of a file whose hunks are kept; two texts of each live in memory")
    symlink_hops: int = _size(40, "links in a row before a path counts as a loop, as in the kernel")

    # -- terminal, tasks, monitor --------------------------------------------------------------------
    bare_echo: int = _size(512, "characters of a command that does nothing but print a text")
    command_output: int = _size(20_000, "characters of an output in memory, half head and half tail")
    wrap_column: int = _size(2_000, "characters in one line for the model; longer ones are wrapped")
    log_kill: int = _size(5 * 2**30, "bytes of a log; a command that writes more is ended")
    log_retained: int = _size(64 * 2**20, "bytes of a log that stay when its command has ended")
    log_prefix: int = _size(2**20, "bytes of an ended task's log read back")
    pipe_turn: int = _size(2**20, "bytes read from one command before others have their turn")
    tombstones: int = _size(100, "ended tasks remembered without their output")
    wait_ids: int = _size(20, "tasks in one question")
    task_preview: int = _size(2_000, "bytes shown of a task's output above `tool_output`")
    monitor_line: int = _size(500, "bytes of one line of an event")
    monitor_event: int = _size(3_000, "bytes of one event")
    monitor_buffer: int = _size(2**20, "bytes of a line without an end, or read in one tick")
    monitor_bucket: int = _size(10, "events at once, before the rate counts")

    # -- file tools ----------------------------------------------------------------------------------
    file_bytes: int = _size(64 << 20, "bytes of a file that is taken into memory to be read or edited")
    edit_context: int = _size(3, "lines shown before and after a changed place")
    edit_nearest: int = _size(200, "bytes of the hint that quotes the line that came nearest")
    edit_lines: int = _size(8, "line numbers listed in a hint; the rest is counted")
    edit_attempts: int = _size(5, "tries of an edit while somebody else keeps writing the same file")
    read_lines: int = _size(1_000, "lines of a file in one reading")
    read_tokens: int = _size(25_000, "tokens of one reading, estimated; more crowds out the conversation")
    read_anchor: int = _size(10, "lines from one line number to the next")
    binary_sample: int = _size(8_192, "bytes looked at to tell text from binary")
    binary_percent: int = _size(30, "percent of unprintable bytes above which a file is no text")
    list_text: int = _size(10_000, "characters of a listing")
    list_items: int = _size(100_000, "entries visited for a listing, at the first level and below it")
    list_extensions: int = _size(3, "file types named in the summary of a folder that is not shown")
    grep_lines: int = _size(200, "lines of matches that are shown when nothing is asked for")
    grep_lines_most: int = _size(2_000, "lines of matches, whatever is asked for")
    grep_entries: int = _size(500, "files that are listed when nothing is asked for")
    grep_entries_most: int = _size(10_000, "files that are listed, whatever is asked for")
    grep_output: int = _size(5_000_000, "bytes taken from a search")
    grep_line: int = _size(1_000, "characters of one matching line")
    grep_body: int = _size(40_000, "bytes of matches given to the model")
    grep_file: int = _size(5 << 20, "bytes of a file; larger ones are data, not source")
    glob_files: int = _size(100, "files of a glob")
    compat_read_lines: int = _size(2_000, "lines of a file in one reading of the compatibility family")
    compat_read_line: int = _size(2_000, "characters of one line there")
    compat_read_bytes: int = _size(50 << 10, "bytes of one reading there")
    compat_grep: int = _size(100, "matches of one search there")

    # -- model, session, agent -----------------------------------------------------------------------
    model_event: int = _size(32 * 2**20, "bytes of one event of a stream; a line of it may have 20 MiB")
    model_answer: int = _size(64 * 2**20, "bytes of one whole answer of a model")
    model_error: int = _size(2_000, "characters of what an endpoint says about a failure")
    model_error_body: int = _size(64 * 2**10, "bytes read of the body of a refusal")
    model_retries: int = _size(15, "tries after the first, for what may pass: 5xx, broken streams, silence")
    rate_limit_tries: int = _size(2, "tries of a call that is refused for its rate")
    jitter_percent: int = _size(
        25, "percent added to a pause at random, so that clients do not come together"
    )
    client_unread: int = _size(256 * 2**20, "bytes that a client has not read; it is given up then")
    client_line: int = _size(64 * 2**20, "bytes of one line of a client")
    open_prompts: int = _size(256, "prompts waiting in one session")
    context_window: int = _size(200_000, "tokens, of a model whose configuration does not say")
    compact_percent: int = _size(85, "percent of the context window at which a summary is made, as in grok")
    compactions: int = _size(3, "summaries made by itself in one turn; more would not get shorter either")
    summary_tries: int = _size(3, "answers without a usable summary before it counts as failed, as in grok")
    summary_least: int = _size(60, "characters; a summary of fewer says nothing of a conversation")
    bytes_per_token: int = _size(4, "of English and code, for estimates before a model has counted")
    title_words: int = _size(10, "words of the first prompt that make a session's first title")
    title: int = _size(200, "characters of it at most")

    # -- sessions on disk ----------------------------------------------------------------------------
    session_history: int = _size(32 << 20, "bytes of a history; older turns go: a load sends all of it")
    session_line: int = _size(4 << 20, "bytes of one entry; the longest text of a model seen has 3 MB")
    session_at_once: int = _size(1 << 20, "bytes of a history that are read without leaving the loop: 10 ms")
    session_page: int = _size(200, "sessions in one answer to a list")
    session_entries: int = _size(5_000, "entries of a history in one answer")
    event_gap: int = _size(1_000, "numbers passed over at an opening; more updates are never left unkept")

    # -- permissions, hooks --------------------------------------------------------------------------
    shell_script: int = _size(64 << 10, "characters of a command that is taken apart; longer ones are asked")
    shell_depth: int = _size(
        32, "wrappers and scripts around a command that are seen through; more are asked"
    )
    shell_commands: int = _size(2_000, "commands found in one script; more are asked")
    hook_payload: int = _size(128 << 10, "bytes of a tool's input or result in a hook; the rest is cut")
    stop_rounds: int = _size(8, "times that stop hooks may keep one turn going")
    config_file: int = _size(1 << 20, "bytes of a file with rules or grants")
    rule_pattern: int = _size(4_096, "characters of one rule")
    grant_prompt: int = _size(8_192, "characters of a command that can be remembered")

    # -- MCP servers ---------------------------------------------------------------------------------
    mcp_servers: int = _size(64, "servers of one session; each is a connection or a process")
    mcp_tools: int = _size(1_000, "tools of one server; more are left out")
    mcp_schema: int = _size(32 << 10, "characters of a tool's schema; one that is longer is left out")
    mcp_pages: int = _size(100, "pages of a list of tools; a server that turns in a circle is stopped")
    mcp_message: int = _size(16 << 20, "bytes of one message of a server")
    mcp_unread: int = _size(32 << 20, "bytes that a server's process has not read; it is given up then")
    mcp_complaint: int = _size(1_000, "bytes of what a server says about its failure")
    mcp_token: int = _size(1_024, "characters of the id that an HTTP server gives its session")
    mcp_errands: int = _size(16, "answers on their way to one server; a flood of requests gets no more")
    mcp_instructions: int = _size(2_048, "characters of what a server says of itself, told to the model")
    mcp_name: int = _size(64, "characters of a tool's full name; model endpoints take no more")
    mcp_found: int = _size(5, "tools that a search shows when nothing is asked for")

    # -- leader, bridge ------------------------------------------------------------------------------
    frame: int = _size(64 << 20, "bytes of one message; the gateway's own limit is lower")
    client_queue: int = _size(64 << 20, "bytes that wait for one client; one that does not read is dropped")
    load_waiting: int = _size(16_384, "messages of a turn that wait behind the replay of a load")
    leader_clients: int = _size(512, "bridges at a time")
    client_sessions: int = _size(256, "sessions that a bridge would load again")
    reconnect_tries: int = _size(5, "then the bridge ends")
    relay_waiting: int = _size(4 << 20, "bytes for one side of a bridge; then the other side is not read")
    relay_chunk: int = _size(256 << 10, "bytes read at a time")


LIMITS = EngineLimits()
SIZES = EngineSizes()
