"""The one table of limits: every number of seconds and every bound in bytes or items.

Nothing else in the project holds such a number.  A row is a dataclass field with its default, its
unit and the reason for the value; ``GROK_GATEWAY_GUARD_SCALE`` multiplies the *guard* rows together,
so that a test which waits for a fail-open waits for seconds instead of ten minutes.

Facts quoted as "Grok" were measured on grok 1.0.41.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Mapping
from typing import Any

__all__ = [
    "GUARD_SETTINGS",
    "LIMITS",
    "SIZES",
    "LimitError",
    "Limits",
    "Sizes",
    "limits_from_environment",
]

SCALE_VARIABLE = "GROK_GATEWAY_GUARD_SCALE"


class LimitError(ValueError):
    """A limit breaks a rule of the table; the text names the setting, the value and the rule."""


def _row(default: float, reason: str, *, guard: bool = False) -> Any:
    return dataclasses.field(default=default, metadata={"reason": reason, "guard": guard})


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, all of them.  ``reason`` of a row: ``Limits.reason("write")``."""

    # -- guard rows: scaled together -----------------------------------------------------------
    pre_hook_registered: float = _row(600, "Grok's cap for a hook's timeout; longer is cut to it", guard=True)
    pre_hook_margin: float = _row(15, "a deny must reach Grok well before the registered timeout", guard=True)
    dialog: float = _row(570, "a person may think; ends before the pre hook's absolute deadline", guard=True)
    check: float = _row(540, "a check or test run after an edit; ends before the dialog window", guard=True)
    post_edit: float = _row(120, "a check of one edited file; the model waits for it", guard=True)
    policy: float = _row(15, "a policy decision is computation, not thought", guard=True)
    ack: float = _row(5, "a live client says so at once; no word means nobody is there", guard=True)
    answer_again: float = _row(
        1,
        "an answer that Grok lost is repeated, and once more at four times this: within the margin",
        guard=True,
    )
    early_answer: float = _row(1, "post and stop hooks: answered before the client's timeout", guard=True)
    orphan_grace: float = _row(
        5, "a client of a dead worker reconnects within this or is rescued", guard=True
    )
    resume_window: float = _row(60, "how long a connection waits for its client's next socket", guard=True)
    reattach_silence: float = _row(
        30, "a re-attached turn silent for this long hangs on a lost hook", guard=True
    )

    # -- answers to client requests ------------------------------------------------------------
    initialize: float = _row(30, "initialize and authenticate: includes a leader still starting")
    session_open: float = _row(60, "session/new and session/load: MCP start-up, a long replay")
    set_option: float = _row(10, "session/set_*: Grok does not answer for an unknown session")
    request: float = _row(30, "any other request except session/prompt, which has none")
    cancel_settle: float = _row(5, "a cancelled turn answers in 8 ms; afterwards it is given up")

    # -- sockets -------------------------------------------------------------------------------
    write: float = _row(10, "a client that reads nothing for this long is cut off")
    head: float = _row(5, "a request head still incomplete after this gets 408")
    ping_interval: float = _row(20, "an idle socket is asked; any byte received counts as life")
    ping_timeout: float = _row(20, "longer than any stall of a healthy client seen")
    close: float = _row(3, "the peer's closing frame, then the transport is aborted")
    bridge_write: float = _row(30, "Grok reads nothing for 7 s while it digests a line of 40 MiB")
    retry_after: float = _row(1, "Retry-After of a 503: a worker starts in under a second")

    # -- processes -----------------------------------------------------------------------------
    terminate: float = _row(3, "TERM to KILL for a child and its process group")
    bridge_eof: float = _row(1, "a bridge exits 8 ms after EOF; afterwards TERM")
    leader_start: float = _row(30, "0.3 s measured; a cold disk and a busy machine may need more")
    chatter: float = _row(10, "a child that talks without end must fill neither the log nor the loop")
    exec_look: float = _row(0.002, "a child has called exec a millisecond after its start")
    bridge_start: float = _row(15, "0.3 s measured, 1.3 s with ten at once")
    first_repeat: float = _row(
        3, "a client's request without an answer; `session/new` needs 0.1 s, 2 s in a crowd"
    )
    first_request: float = _row(1, "a message that gives no sign may be lost; sent again, the pause doubles")
    late_text: float = _row(3, "with 20 turns at a time, text came up to 1 s behind the answer to its prompt")
    leader_poll: float = _row(0.02, "a starting leader is looked at this often; it needs 0.2 s")
    leftovers: float = _row(1, "TERM to KILL for tools of a dead leader: the next one waits for it")
    version: float = _row(10, "answer to --version: 0.04 s; a cold disk reads 166 MB")
    probe_interval: float = _row(5, "health of leader, front and workers")
    probe_timeout: float = _row(5, "one probe; three in a row missed is a hang")
    worker_hang: float = _row(15, "a worker that answers no ping for this long is restarted")
    backoff_first: float = _row(0.5, "first pause; a leader that had been ready is started again at once")
    backoff_last: float = _row(30, "pauses double up to this")
    circuit_window: float = _row(60, "too many starts within this open the circuit")
    circuit_rest: float = _row(60, "an open circuit tries one start after this long")
    drain: float = _row(30, "a planned hand-over; then what is open is denied")
    rejoin: float = _row(0.7, "no other worker is ready: one that is just back joins within this")
    restarted: float = _row(5, "a lost worker is back within 2.2 s; a hand-over waits for it so long")
    drain_look: float = _row(0.02, "a draining worker looks whether what is open has been answered")
    drain_all: float = _row(3, "all workers drain at once: nobody to hand over to")
    stop_decision: float = _row(0.5, "the front waits to see whether the workers stop too")
    rescue: float = _row(2, "a rescue bridge cancels a turn in 20 ms; then it is closed by force")
    rescue_pause: float = _row(0.02, "between two looks at what a rescue has ended; a cancel needs 8 ms")
    rescue_again: float = _row(0.5, "a rescue that failed is tried again, as long as the leader is ready")
    resume_hold: float = _row(6, "a resume waits for the rescue of its connection; then 503, come again")
    systemd_watchdog: float = _row(30, "WatchdogSec of the unit; fed at a third of it")
    escrow: float = _row(2, "the front asks the watchdog for the listening socket")
    lock: float = _row(1, "a lock file is held for microseconds, unless its holder is stopped")
    lock_pause: float = _row(0.001, "between two tries for a lock file")
    control: float = _row(5, "an answer on a control channel")
    reconnect: float = _row(0.1, "pause between tries to reach a control socket that is not there yet")
    accept_pause: float = _row(0.1, "no descriptor left for a new socket: let some close, then go on")
    offer: float = _row(1, "a socket on its way counts as the worker's; by then it counts it itself")
    roster_settle: float = _row(1, "a starting front lets the workers that run say what they own")
    gather: float = _row(0.7, "a worker's part of the front's `status`: below `status`, or it would hide all")
    supervisor_gone: float = _row(3, "after supervisord died: the workers end, then the leader")
    ready: float = _row(60, "`up` and `restart` wait this long for readiness")
    lost_hook: float = _row(1, "a tool call with no hook after a re-attach: the hook was lost")
    down: float = _row(10, "`down`: everything of this home is gone")
    progress: float = _row(0.1, "the command line looks again; each look also wakes supervisord")
    status: float = _row(1, "one component's answer to `status`: a hung one must not hold up the table")
    fatal_rest: float = _row(30, "a program that fails again and again is tried again after this")
    systemd_job: float = _row(100, "systemctl waits for the unit, whose TimeoutStartSec is 90")
    install: float = _row(600, "npm fetches 50 MB and unpacks 166 MB")
    top: float = _row(1, "`top` looks again; faster would only flicker")
    model_answer: float = _row(60, "the offline model has streamed its answer long before")
    late_replay: float = _row(0.5, "on one bridge in 100 it came up to 130 ms behind the answer to its load")
    seam: float = _row(10, "a load that closes a gap in a text: 20 ms; a busy machine may need seconds")
    seam_pause: float = _row(0.05, "after a load that lost a chunk; doubles, as each load may lose others")
    seam_pause_last: float = _row(1, "a text that streams too fast to be followed is shown this often")

    @staticmethod
    def reason(name: str) -> str:
        """The reason recorded for a row."""
        return str(Limits.__dataclass_fields__[name].metadata["reason"])

    @property
    def pre_hook_answer(self) -> float:
        """A pre hook registered with the table's value is settled this long after it opened."""
        return self.pre_hook_registered - self.pre_hook_margin

    def scaled(self, factor: float) -> Limits:
        """The same table with every guard row multiplied by ``factor``."""
        rows = (f for f in dataclasses.fields(self) if f.metadata["guard"])
        return dataclasses.replace(self, **{f.name: getattr(self, f.name) * factor for f in rows})

    def with_guard_settings(self, settings: Mapping[str, float]) -> Limits:
        """The table with the ``guard.*`` settings (milliseconds) put in, rules checked.

        Raises LimitError naming the setting and the rule it breaks.
        """
        changed = dict[str, float]()
        for key, value in settings.items():
            if key not in GUARD_SETTINGS:
                raise LimitError(f"guard.{key}: unknown; allowed are {', '.join(sorted(GUARD_SETTINGS))}")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise LimitError(
                    f"guard.{key} = {value!r}: must be a positive, finite number of milliseconds"
                )
            changed[GUARD_SETTINGS[key]] = float(value) / 1000
        table = dataclasses.replace(self, **changed)
        table.check_rules()
        return table

    def check_rules(self) -> None:
        """Raise LimitError unless ack ≤ policy < check < dialog < the pre hook's absolute deadline."""
        order = ("ack", "policy", "check", "dialog", "pre_hook_answer")
        names = {row: f"guard.{key}" for key, row in GUARD_SETTINGS.items()}
        names["pre_hook_answer"] = "the pre hook's deadline"
        for low, high in itertools.pairwise(order):
            small, large = getattr(self, low), getattr(self, high)
            if small > large or (small == large and low != "ack"):
                sign = "≤" if low == "ack" else "<"
                raise LimitError(
                    f"{names[low]} ({small * 1000:g} ms) must be {sign} {names[high]} ({large * 1000:g} ms)"
                )


#: Settings of the ``[guard]`` section (milliseconds, names of the TypeScript gateway) and their rows.
GUARD_SETTINGS = {"ackMs": "ack", "policyMs": "policy", "checkBudgetMs": "check", "dialogMs": "dialog"}


@dataclasses.dataclass(frozen=True, slots=True)
class Sizes:
    """Bounds in bytes, or in items where the name says so."""

    head: int = 16 * 1024  # a request head; 431 above
    head_line: int = 8192  # one line of it with CRLF, and below it the fields: what the workers'
    head_fields: int = 128  # WebSocket parser takes; 431 above, or an admitted socket would just close
    linger: int = 16 * 2**20  # bytes of a refused request read away, so that it ends by FIN, not RST
    frame: int = 64 * 2**20  # a WebSocket message; 1009 above
    grok_line: int = 63 * 2**20  # bytes + quotes + backslashes: Grok wraps the line in a JSON string
    engine_line: int = 64 * 2**20  # Grok's own frame limit; a longer line is dropped and reported
    overlong_head: int = 1024  # first bytes of a dropped line, kept to find its id
    log_line: int = 1024  # of a child's output in one log line; the rest is cut
    read: int = 256 * 1024  # one read from a pipe
    bridge_input: int = 64 * 2**20  # a bridge's line under way; reading on behind it, for acks and answers
    write_high: int = 256 * 1024  # a transport asks its source to pause above this
    unsent: int = 128 * 1024  # TCP_NOTSENT_LOWAT: what a ping waits behind, the grain of write progress
    write_batch: int = 512  # buffers in one writev; the kernel takes 1024
    fragment: int = 256 * 1024  # a longer message is fragmented: pings and pongs pass between
    control_frames: int = 16  # pongs waiting for a client that does not read; older ones are dropped
    resume_buffer: int = 4 * 2**20  # server frames kept for a client that comes back
    resume_frames: int = 8192  # likewise, counted
    packet: int = 128 * 1024  # one message on a control channel; SO_SNDBUF holds it
    channel_queue: int = 256  # packets waiting on a control channel
    launcher: int = 64 * 1024  # of a shell wrapper, searched for the program that it starts
    stderr_tail: int = 4096  # of a child, kept for error texts
    chatter: int = 100  # lines of a child's stderr, or noise on its stdout, logged within `Limits.chatter`
    open_requests: int = 256  # of one client, unanswered
    open_gates: int = 256  # of one client
    ended_turns: int = 8  # of one session, remembered for answers that come after them
    sessions: int = 64  # of one connection
    sockets: int = 512  # of one worker; a full worker is skipped
    pending_heads: int = 512  # sockets whose head is still being read
    backlog: int = 1024  # listen(2)
    resend: int = 2**20  # a line of a client that is kept, in case that the leader never gets it
    structure: int = 2**19  # values in a client message; parsing more would hold the worker's loop
    depth: int = 127  # levels of JSON that Grok reads; a deeper line it drops without a word
    id: int = 1024  # an id of a client's request, as spelled
    session_id: int = 128  # characters
    matcher: int = 256  # characters of a hook's matcher
    journal: int = 1 * 2**20  # rewritten (compacted) above
    log: int = 10 * 2**20  # one log file, then rotated
    log_backups: int = 3
    audit_text: int = 200  # characters of one field of an audit record
    descriptors: int = 4096  # of one process: `sockets`, each with pipes, pidfd and journal
    held_lines: int = 4096  # engine lines held back at a seam
    loads_in_vain: int = 3  # in a row, that bring nothing to a gap in a text; then another bridge must
    hook_tail: int = 64  # newest updates of a session, looked at for a tool call that stays alone
    hand_overs: int = 3  # tries with successors; then the journal must do
    claims: int = 1000  # ids in one packet that tells what a worker owns
    bridge_failures: int = 3  # lost bridges within a minute; then 1011
    bridge_failure_window_s: int = 60
    leader_starts: int = 5  # within circuit_window; then the circuit opens
    probe_misses: int = 3
    start_retries: int = 3  # failures within circuit_window; with one more a program gets a rest
    ends: int = 30  # of a program within circuit_window, kills included; with one more it gets a rest
    rescues: int = 5  # tries to end a turn that nobody serves; then its client may have it back
    status_clients: int = 256  # listed by `status`
    lent_body: int = 16 * 2**20  # POST /mcp/<token>; 413 above
    pinned_copy: int = 256 * 2**20  # room for the engine's copy, 166 MB measured
    model_request: int = 64 * 2**20  # to the offline model; 413 above
    pi_entries: int = 1000  # of one Pi process that its session could not take yet; the oldest are dropped
    lent_calls: int = 64  # parked lent calls of one connection


def limits_from_environment(environ: Mapping[str, str] = os.environ) -> Limits:
    """The table, its guard rows scaled by GROK_GATEWAY_GUARD_SCALE (default 1).

    Raises LimitError for a value that is not a number in (0, 1].
    """
    text = environ.get(SCALE_VARIABLE, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0 < factor <= 1:
        raise LimitError(f"{SCALE_VARIABLE}={text!r}: must be a number above 0 and at most 1")
    return Limits().scaled(factor)


def _imported() -> Limits:
    """The table for this process.  An import must not fail with a traceback: `Settings.load`, which
    every command goes through, says what is wrong with the variable."""
    try:
        return limits_from_environment()
    except LimitError:
        return Limits()


LIMITS = _imported()
SIZES = Sizes()
