"""``python -m tests.fidelity [NUMBER…]``: play scenarios on both engines and show where they differ.

``--against grok`` plays the original twice: what differs then is noise of the comparison itself.
``--records FOLDER`` writes the recordings as readable JSON, ``--report FILE`` the differences by part.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import secrets
import sys
from pathlib import Path

from tests.fidelity.play import Recording
from tests.fidelity.readable import write_readable
from tests.fidelity.rounds import Outcome, play_all
from tests.fidelity.scenarios import load


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int)
    parser.add_argument("--engine", default="grok", help="the first engine")
    parser.add_argument("--against", default="harness", help='the second one; "" for none')
    parser.add_argument("--records", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument(
        "--all", action="store_true", help="show all differences, not the first ten of a scenario"
    )
    options = parser.parse_args()
    wanted = [s for s in load() if not options.numbers or s.number in options.numbers]
    engines = [name for name in (options.engine, options.against) if name]
    most = 10**6 if options.all else 10
    outcomes = await play_all(
        wanted, engines, options.seed, options.jobs, lambda outcome: show(outcome, most)
    )
    for outcome in outcomes:
        if options.records:
            for recording in outcome.recordings:
                write_readable(recording, options.records / (recording.engine if options.against else ""))
    if options.report:
        options.report.write_text(report(outcomes), "utf-8")
    print(table(outcomes))
    print(f"seed {options.seed}")
    return int(any(o.unexplained for o in outcomes))


def table(outcomes: list[Outcome]) -> str:
    """Scenario by scenario, and the share that is identical."""
    lines = [f"{o.scenario.label:<38} {o.verdict}" for o in outcomes]
    same = sum(not o.differences for o in outcomes)
    meant = sum(bool(o.differences) and not o.unexplained for o in outcomes)
    share = 100 * same / max(1, len(outcomes))
    lines.append(f"{same} of {len(outcomes)} identical ({share:.0f} %), {meant} differ as meant")
    return "\n".join(lines)


def show(outcome: Outcome, most: int) -> None:
    count = (
        f" ({len(outcome.unexplained)} of {len(outcome.differences)} unexplained)"
        if outcome.differences
        else ""
    )
    name, seconds = f"{outcome.scenario.label} [{outcome.scenario.part}]", f"{outcome.seconds:.1f} s"
    print(f"{name} {seconds}: {outcome.verdict}{count}", flush=True)
    for recording in outcome.recordings:
        if recording.failure:
            print(f"    {recording.engine} FAILED {tail(recording)}")
    for difference in outcome.unexplained[:most]:
        print(f"    {difference}")


def tail(recording: Recording) -> str:
    return " / ".join(
        recording.failure.strip().splitlines()[:1] + recording.failure.strip().splitlines()[-3:]
    )[:600]


def report(outcomes: list[Outcome]) -> str:
    """By part, the differences that most scenarios share first."""
    parts = collections.defaultdict[str, list[str]](list)
    for outcome in outcomes:
        lines = parts[outcome.scenario.part]
        lines.append(
            f"\n## {outcome.scenario.label}: {outcome.verdict}, {len(outcome.unexplained)} unexplained"
        )
        lines.extend(f"- {r.engine} failed: {tail(r)}" for r in outcome.recordings if r.failure)
        lines.extend(f"- {difference}" for difference in outcome.unexplained[:60])
    common = collections.Counter(
        key
        for o in outcomes
        for key in {(d.kind, d.place, d.first[:160], d.second[:160]) for d in o.unexplained}
    )
    shared = [(k, n) for k, n in common.most_common() if n > 2]
    text = ["# Shared by several scenarios (number of scenarios | kind | place: original ≠ embedded)"]
    text += [f"- {n} | {kind} | {place}: {first} ≠ {second}" for (kind, place, first, second), n in shared]
    for part, lines in sorted(parts.items()):
        text += [f"\n# Part {part}", *lines]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
