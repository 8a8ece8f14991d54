"""Changes since a baseline, each with who made it, to be accepted or rejected.

For every file two texts are kept: the *baseline*, which the person has seen and accepted, and the
*current* one.  A hunk is a region in which they differ.  Accepting moves the baseline, rejecting gives
the text to write back; neither depends on other hunks of the file.  Whoever changed a region last owns
the hunk; a hunk that a later change leaves alone keeps its id and its owner wherever it moves to.

Nothing here touches a file: texts come in through the methods, and `reject` hands out what to write.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import time
from collections.abc import Callable, Iterable, Sequence

from harness.workspace.linediff import Region, differences, patch, split_lines

__all__ = [
    "Decided",
    "Hunk",
    "HunkEvent",
    "HunkMode",
    "HunkTracker",
    "Origin",
    "Restored",
    "Source",
    "Summary",
]


class HunkMode(enum.StrEnum):
    AGENT_ONLY = "agent_only"  # files the agent has written
    ALL_DIRTY = "all_dirty"  # every file that differs from its baseline


class Source(enum.StrEnum):
    AGENT = "agentEdit"
    EXTERNAL_ON_AGENT_FILE = "externalEditOnAgentFile"
    EXTERNAL = "external"


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """Who made a change; ``prompt_index`` is the turn of an agent's edit."""

    source: Source
    prompt_index: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Hunk:
    """One region; starts count lines from 1, at a count of 0 the start is the line before it."""

    id: str
    path: str
    region: Region
    origin: Origin
    old_text: str
    new_text: str
    created_at: float

    @property
    def old_start(self) -> int:
        return self.region.old_start + (self.old_count > 0)

    @property
    def old_count(self) -> int:
        return self.region.old_end - self.region.old_start

    @property
    def new_start(self) -> int:
        return self.region.new_start + (self.new_count > 0)

    @property
    def new_count(self) -> int:
        return self.region.new_end - self.region.new_start


@dataclasses.dataclass(frozen=True, slots=True)
class HunkEvent:
    """``kind``: added, removed, moved, content_changed, file_added, file_removed, baseline_updated.

    ``reason`` of a removal: accepted, rejected or superseded.
    """

    kind: str
    path: str
    hunk: Hunk | None = None
    reason: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Restored:
    """What to write so that rejected hunks are gone; None: the file did not exist, remove it."""

    path: str
    content: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    files: int
    hunks: int
    additions: int
    deletions: int
    by_source: dict[Source, int]


@dataclasses.dataclass(slots=True)
class Decided:
    """What a person has accepted or rejected so far."""

    hunks: int = 0
    additions: int = 0
    deletions: int = 0

    def add(self, hunks: Iterable[Hunk]) -> None:
        for hunk in hunks:
            self.hunks += 1
            self.additions += hunk.new_count
            self.deletions += hunk.old_count


@dataclasses.dataclass(slots=True)
class _File:
    baseline: str | None
    current: str | None
    by_agent: bool = False
    hunks: list[Hunk] = dataclasses.field(default_factory=list)


class HunkTracker:
    """All tracked files of a session."""

    def __init__(
        self,
        mode: HunkMode = HunkMode.AGENT_ONLY,
        on_event: Callable[[HunkEvent], None] = lambda _event: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.mode = mode
        self.accepted = Decided()
        self.rejected = Decided()
        self._files: dict[str, _File] = {}
        self._on_event = on_event
        self._clock = clock
        self._ids = itertools.count(1)

    # -- what happened to files ----------------------------------------------------------------------

    def agent_wrote(self, path: str, content: str | None, previous: str | None, prompt_index: int) -> None:
        """The agent wrote (None: removed) a file that held ``previous`` before.

        What differs between ``previous`` and the text last seen was done by somebody else.
        """
        file = self._files.get(path)
        if file is None:
            file = self._add(path, previous)
        elif file.current != previous:
            self._change(path, file, previous, Origin(_foreign(file)))
        file.by_agent = True
        self._change(path, file, content, Origin(Source.AGENT, prompt_index))

    def file_changed(self, path: str, content: str | None, baseline: str | None = None) -> None:
        """Somebody else changed a file; ``baseline`` counts only for one not tracked yet."""
        file = self._files.get(path)
        if file is None:
            if self.mode is HunkMode.AGENT_ONLY or content == baseline:
                return
            file = self._add(path, baseline)
        if content != file.current:
            self._change(path, file, content, Origin(_foreign(file)))

    def committed(self, path: str, content: str | None) -> None:
        """Version control has this text now: it is the baseline, and the file's own text stays."""
        file = self._files.get(path)
        if file is not None:
            file.baseline = content
            self._renew(path, file, rest="accepted")
            self._on_event(HunkEvent("baseline_updated", path))

    # -- what a person decides -----------------------------------------------------------------------

    def accept(self, ids: Iterable[str]) -> None:
        for path, chosen in self._chosen(ids):
            file = self._files[path]
            self.accepted.add(chosen)
            parts = [(h.region.old_start, h.region.old_end, h.new_text) for h in chosen]
            gone = file.current is None and len(chosen) == len(file.hunks)
            file.baseline = None if gone else _spliced(file.baseline, parts)
            self._renew(path, file, settled=chosen, reason="accepted")
            self._on_event(HunkEvent("baseline_updated", path))

    def reject(self, ids: Iterable[str]) -> list[Restored]:
        """Take the hunks back; the caller writes what comes out."""
        restored = []
        for path, chosen in self._chosen(ids):
            file = self._files[path]
            self.rejected.add(chosen)
            parts = [(h.region.new_start, h.region.new_end, h.old_text) for h in chosen]
            gone = file.baseline is None and len(chosen) == len(file.hunks)
            file.current = text = None if gone else _spliced(file.current, parts)
            self._renew(path, file, settled=chosen, reason="rejected")
            restored.append(Restored(path, text))
        return restored

    # -- queries -------------------------------------------------------------------------------------

    def hunks(self, *, path: str | None = None, prompt_index: int | None = None) -> list[Hunk]:
        """By file and position; of one file, of one turn, or all."""
        return [
            hunk
            for name in sorted(self._files)
            if path in (None, name)
            for hunk in self._files[name].hunks
            if prompt_index is None or hunk.origin.prompt_index == prompt_index
        ]

    def patch(self, path: str) -> str:
        file = self._files[path]
        return patch(path, file.baseline or "", file.current or "")

    def paths(self) -> list[str]:
        return sorted(self._files)

    def current(self, path: str) -> str | None:
        return self._files[path].current

    def baseline(self, path: str) -> str | None:
        return self._files[path].baseline

    def by_agent(self, path: str) -> bool:
        return self._files[path].by_agent

    def summary(self) -> Summary:
        hunks = self.hunks()
        return Summary(
            files=len({hunk.path for hunk in hunks}),
            hunks=len(hunks),
            additions=sum(hunk.new_count for hunk in hunks),
            deletions=sum(hunk.old_count for hunk in hunks),
            by_source={s: n for s in Source if (n := sum(hunk.origin.source is s for hunk in hunks))},
        )

    # -- inside --------------------------------------------------------------------------------------

    def _add(self, path: str, baseline: str | None) -> _File:
        file = self._files[path] = _File(baseline, baseline)
        self._on_event(HunkEvent("file_added", path))
        return file

    def _change(self, path: str, file: _File, content: str | None, origin: Origin) -> None:
        touched = differences(split_lines(file.current or ""), split_lines(content or ""))
        file.current = content
        self._renew(path, file, touched, origin)
        if not file.hunks and not file.by_agent and file.baseline == content:
            del self._files[path]
            self._on_event(HunkEvent("file_removed", path))

    def _chosen(self, ids: Iterable[str]) -> list[tuple[str, list[Hunk]]]:
        wanted = set(ids)
        found = ((path, [h for h in file.hunks if h.id in wanted]) for path, file in self._files.items())
        return [(path, chosen) for path, chosen in found if chosen]

    def _renew(
        self,
        path: str,
        file: _File,
        touched: Iterable[Region] = (),
        origin: Origin | None = None,
        *,
        settled: Iterable[Hunk] = (),
        reason: str = "",
        rest: str = "superseded",
    ) -> None:
        """Find the hunks again after one of the texts changed, and tell what became of the old ones.

        ``settled`` are those a person decided on, removed for ``reason``: another hunk with the same lines
        must not take their place.  ``rest`` is why any other is no longer there.
        """
        old_lines, new_lines = split_lines(file.baseline or ""), split_lines(file.current or "")
        before, file.hunks = file.hunks, []
        gone = {hunk.id: hunk for hunk in settled}
        left = {hunk.id: hunk for hunk in before if hunk.id not in gone}
        for region in differences(old_lines, new_lines):
            old_text = "".join(old_lines[region.old_start : region.old_end])
            new_text = "".join(new_lines[region.new_start : region.new_end])
            kin = _same(left.values(), region, old_text, new_text) or _overlapping(left.values(), region)
            inherited = kin or _overlapping(before, region)
            owner = origin if origin and _touches(touched, region) else None
            made = Hunk(
                id=kin.id if kin else f"hunk-{next(self._ids)}",
                path=path,
                region=region,
                origin=owner
                or (inherited.origin if inherited else None)
                or origin
                or Origin(Source.EXTERNAL),
                old_text=old_text,
                new_text=new_text,
                created_at=kin.created_at if kin else self._clock(),
            )
            file.hunks.append(made)
            if kin is not None:
                del left[kin.id]
            self._tell(kin, made)
        for hunk in gone.values():
            self._on_event(HunkEvent("removed", path, hunk, reason))
        for hunk in left.values():
            self._on_event(HunkEvent("removed", path, hunk, rest))

    def _tell(self, before: Hunk | None, made: Hunk) -> None:
        if before is None:
            self._on_event(HunkEvent("added", made.path, made))
        elif (before.old_text, before.new_text) != (made.old_text, made.new_text):
            self._on_event(HunkEvent("content_changed", made.path, made))
        elif before.region != made.region:
            self._on_event(HunkEvent("moved", made.path, made))


def _foreign(file: _File) -> Source:
    return Source.EXTERNAL_ON_AGENT_FILE if file.by_agent else Source.EXTERNAL


def _touches(changed: Iterable[Region], region: Region) -> bool:
    """Whether a change lies in the region; a removal is a point and counts at the region's edges too."""
    return any(
        change.new_start < region.new_end and region.new_start < change.new_end
        if change.new_start < change.new_end and region.new_start < region.new_end
        else change.new_start <= region.new_end and region.new_start <= change.new_end
        for change in changed
    )


def _same(hunks: Iterable[Hunk], region: Region, old_text: str, new_text: str) -> Hunk | None:
    """The same change; the nearest one where a file has it more than once."""
    equal = [hunk for hunk in hunks if hunk.old_text == old_text and hunk.new_text == new_text]
    return min(equal, key=lambda hunk: abs(hunk.region.old_start - region.old_start), default=None)


def _overlapping(hunks: Iterable[Hunk], region: Region) -> Hunk | None:
    for hunk in hunks:
        other = hunk.region
        if other.old_start <= region.old_end and region.old_start <= other.old_end:
            return hunk
    return None


def _spliced(text: str | None, parts: Sequence[tuple[int, int, str]]) -> str:
    """A text with other lines in the place of some: from, to, what; in order."""
    lines = split_lines(text or "")
    for start, end, other in reversed(parts):
        lines[start:end] = split_lines(other)
    return "".join(lines)
