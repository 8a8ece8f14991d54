"""What clients are told of the workspace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from harness.workspace.discovery import SkillFile
from harness.workspace.executor import HostExecutor
from harness.workspace.host_filesystem import HostFileSystem
from harness.workspace.hunks import HunkMode, HunkTracker
from harness.workspace.service import METHODS, rewind, rewind_points, skills_json
from harness.workspace.session import WorkspaceSession
from harness.workspace.vcs import GitError

from .test_session import write
from .test_vcs import Checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path)
    made.put("a", "1\n2\n3\n")
    made.put("sub/b", "1\n")
    made("add", "-A")
    made("commit", "-qm", "first")
    return made


@pytest.fixture
def session(checkout: Checkout) -> WorkspaceSession:
    return WorkspaceSession(
        "s",
        str(checkout.root),
        fs=HostFileSystem(),
        env=checkout.env,
        executor=HostExecutor(checkout.env),
        terminal=object(),  # type: ignore[arg-type]
        hunks=HunkTracker(HunkMode.ALL_DIRTY),
    )


async def ask(session: WorkspaceSession, method: str, **params: Any) -> Any:
    return await METHODS[method](session, params)


async def test_git(session: WorkspaceSession, checkout: Checkout) -> None:
    checkout("remote", "add", "origin", "https://example.invalid/x.git")
    commit = checkout("rev-parse", "HEAD").strip()
    checkout.put("a", "1\n3\n")
    checkout.put("new", "x\ny\n")
    checkout("mv", "sub/b", "sub/c")
    root = str(checkout.root)
    status = await ask(session, "git/status")
    assert status == {
        "root": root,
        "mainRoot": root,
        "isWorktree": False,
        "branch": "main",
        "commit": commit,
        "remoteUrl": "https://example.invalid/x.git",
        "staged": [
            {
                "path": "sub/c",
                "type": "rename",
                "staged": True,
                "additions": 0,
                "deletions": 0,
                "oldPath": "sub/b",
            }
        ],
        "unstaged": [{"path": "a", "type": "edit", "staged": False, "additions": 0, "deletions": 0}],
    }
    assert await ask(session, "git/info") == {
        "root": root,
        "remotes": ["https://example.invalid/x.git"],
        "currentBranch": "main",
        "vcsKind": "git",
    }
    assert await ask(session, "git/branches") == {
        "currentBranch": "main",
        "repoRoot": root,
        "branches": [{"name": "main", "current": True, "remote": False}],
    }
    assert await ask(session, "git/current_commit") == commit
    diffs = await ask(session, "git/diffs", includePatch=True)
    found = {file["path"]: (file["type"], file["additions"], file["deletions"]) for file in diffs["files"]}
    assert found == {
        "a": ("edit", 0, 1),
        "new": ("untracked", 2, 0),
        "sub/b": ("delete", 0, 1),
        "sub/c": ("create", 1, 0),
    }
    patches = {file["path"]: file["patch"] for file in diffs["files"]}
    assert "-2\n" in patches["a"]
    assert "+x\n+y\n" in patches["new"]
    assert [file["path"] for file in (await ask(session, "git/diffs", paths=["a"]))["files"]] == ["a"]


async def test_versions_of_files(session: WorkspaceSession, checkout: Checkout) -> None:
    checkout.put("a", b"now\0")
    answer = await ask(session, "git/files", paths=["a", "nope"])
    assert answer["files"] == [{"path": "a", "version": "HEAD", "content": "1\n2\n3\n", "isBinary": False}]
    assert [(error["path"], error["code"]) for error in answer["errors"]] == [("nope", "READ_FAILED")]
    answer = await ask(session, "git/files", paths=["a", "nope", "../a", "/etc/passwd"], version="working")
    assert answer["files"] == [{"path": "a", "version": "working", "content": "", "isBinary": True}]
    assert len(answer["errors"]) == 3
    with pytest.raises(ValueError, match="paths"):
        await ask(session, "git/files")
    with pytest.raises(ValueError, match="paths"):
        await ask(session, "git/files", paths=[1])


async def test_no_repository(session: WorkspaceSession, tmp_path: Path) -> None:
    session.cwd = str(tmp_path)
    with pytest.raises(GitError, match="no git repository"):
        await ask(session, "git/status")


async def hunks(session: WorkspaceSession) -> list[tuple[str, dict[str, Any]]]:
    found = (await ask(session, "hunk-tracker/get-hunks"))["hunks"]
    return [(os.path.basename(hunk["path"]), hunk["source"]) for hunk in found]


async def test_hunks(session: WorkspaceSession, checkout: Checkout) -> None:
    session.begin_prompt("p")
    await write(session, "a", "one\n2\n3\n")
    await write(session, "fresh", "x\n")
    checkout.put("sub/b", "other\n")
    agent = {"type": "agentEdit", "prompt_index": 0}
    assert await hunks(session) == [("a", agent), ("fresh", agent), ("b", {"type": "external"})]
    (fresh,) = (await ask(session, "hunk-tracker/get-hunks", path=f"{checkout.root}/fresh"))["hunks"]
    assert fresh["lineInfo"] == {"oldStart": 0, "oldCount": 0, "newStart": 1, "newCount": 1}
    assert (fresh["oldText"], fresh["newText"], fresh["patch"]) == (None, "x\n", None)
    assert fresh["createdAt"].endswith("+00:00")
    files = (await ask(session, "hunk-tracker/get-files"))["files"]
    assert [
        (os.path.basename(f["path"]), f["isAgentFile"], f["additions"], f["deletions"]) for f in files
    ] == [
        ("a", True, 1, 1),
        ("fresh", True, 1, 0),
        ("b", False, 1, 1),
    ]
    assert await ask(session, "hunk-tracker/hunk-action", hunkId=fresh["id"], action="reject") == {
        "success": True,
        "affectedCount": 1,
    }
    assert not (checkout.root / "fresh").exists()
    summary = await ask(session, "hunk-tracker/get-summary")
    assert (summary["pendingHunks"], summary["unattributedPending"], summary["filesWithPending"]) == (1, 1, 1)
    assert (summary["stats"]["rejectedHunks"], summary["stats"]["rejectedLinesAdded"]) == (1, 1)
    assert [turn["promptIndex"] for turn in summary["turns"]] == [0]
    await ask(session, "hunk-tracker/turn-action", promptIndex=0, action="accept")
    assert await hunks(session) == [("b", {"type": "external"})]
    await ask(session, "hunk-tracker/file-action", path=f"{checkout.root}/sub/b", action="reject")
    assert (checkout.root / "sub/b").read_text() == "1\n"
    assert (checkout.root / "a").read_text() == "one\n2\n3\n"
    assert await ask(session, "hunk-tracker/all-action", action="accept") == {
        "success": True,
        "affectedCount": 0,
    }


@pytest.mark.parametrize(
    ("method", "params", "text"),
    [
        ("hunk-action", {}, "missing field `hunkId`"),
        ("hunk-action", {"hunkId": "x"}, "missing field `action`"),
        ("hunk-action", {"hunkId": "x", "action": "bad"}, "unknown action: bad"),
        ("file-action", {}, "missing field `path`"),
        ("turn-action", {}, "missing field `promptIndex`"),
        ("turn-action", {"promptIndex": True, "action": "accept"}, "wrong type"),
        ("all-action", {}, "missing field `action`"),
    ],
)
async def test_wrong_decisions(
    session: WorkspaceSession, method: str, params: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        await ask(session, f"hunk-tracker/{method}", **params)


async def test_a_decision_on_no_hunk(session: WorkspaceSession) -> None:
    answer = await ask(session, "hunk-tracker/hunk-action", hunkId="nope", action="accept")
    assert answer["success"] is False
    assert "nope" in answer["error"]


async def test_a_rejected_hunk_that_somebody_changed_meanwhile(
    session: WorkspaceSession, checkout: Checkout
) -> None:
    session.begin_prompt()
    await write(session, "a", "one\n2\n3\n")
    (hunk,) = session.hunks.hunks()
    checkout.put("a", "one\n2\n3\nmore\n")
    await ask(session, "hunk-tracker/hunk-action", hunkId=hunk.id, action="reject")
    assert (checkout.root / "a").read_text() == "1\n2\n3\nmore\n"


async def test_rewind(session: WorkspaceSession, checkout: Checkout) -> None:
    session.begin_prompt("first " * 20)
    await write(session, "a", "one\n")
    await write(session, "fresh", "x\n")
    session.end_prompt()
    session.begin_prompt("second")
    await write(session, "a", "two\n")
    session.end_prompt()
    points = rewind_points(session)["rewind_points"]
    assert [(p["prompt_index"], p["num_file_snapshots"], p["has_file_changes"]) for p in points] == [
        (0, 2, True),
        (1, 1, True),
    ]
    assert points[0]["prompt_preview"] == ("first " * 20)[:57] + "..."

    answer = await rewind(session, {"targetPromptIndex": 7})
    assert (answer["success"], bool(answer["error"])) == (False, True)
    look_first = await rewind(session, {"targetPromptIndex": 0})
    assert look_first == {
        "success": False,
        "target_prompt_index": 0,
        "mode": "all",
        "reverted_files": [],
        "clean_files": ["a", "fresh"],
        "conflicts": [],
        "prompt_text": None,
        "error": None,
    }
    checkout.put("fresh", "theirs\n")
    warned = await rewind(session, {"targetPromptIndex": 0})
    assert warned["conflicts"] == [{"path": "fresh", "conflict_type": "modified_externally"}]
    assert warned["clean_files"] == ["a"]
    assert warned["error"]
    assert (checkout.root / "a").read_text() == "two\n"

    done = await rewind(session, {"targetPromptIndex": 0, "mode": "files_only", "force": True})
    assert (done["success"], done["reverted_files"]) == (True, ["a", "fresh"])
    assert (checkout.root / "a").read_text() == "1\n2\n3\n"
    assert not (checkout.root / "fresh").exists()
    assert [p["num_file_snapshots"] for p in rewind_points(session)["rewind_points"]] == [0, 0]
    assert (await rewind(session, {"targetPromptIndex": 1, "force": True}))["success"]
    assert [p["prompt_index"] for p in rewind_points(session)["rewind_points"]] == [0]
    with pytest.raises(ValueError, match="unknown variant `files`"):
        await rewind(session, {"targetPromptIndex": 0, "mode": "files"})
    with pytest.raises(ValueError, match="targetPromptIndex"):
        await rewind(session, {})


async def test_going_back_in_the_conversation_only(session: WorkspaceSession, checkout: Checkout) -> None:
    session.begin_prompt("first")
    await write(session, "a", "one\n")
    (checkout.root / "a").unlink()
    assert (await rewind(session, {"targetPromptIndex": 0}))["conflicts"] == [
        {"path": "a", "conflict_type": "deleted_externally"}
    ]
    done = await rewind(session, {"targetPromptIndex": 0, "mode": "conversation_only", "force": True})
    assert (done["success"], done["reverted_files"], done["conflicts"]) == (True, [], [])
    assert rewind_points(session) == {"rewind_points": []}


def test_skills() -> None:
    (one,) = skills_json([SkillFile("n", "d", "/p/SKILL.md", "repo", model_invocable=False)])["skills"]
    assert one == {
        "name": "n",
        "description": "d",
        "has_user_specified_description": True,
        "path": "/p/SKILL.md",
        "scope": "repo",
        "user_invocable": True,
        "disable_model_invocation": True,
        "enabled": True,
    }
