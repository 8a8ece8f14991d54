"""Skills found at a session's places, as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.workspace.discovery import SkillFile

__all__ = ["skills_json"]


def skills_json(skills: Iterable[SkillFile]) -> dict[str, Any]:
    return {
        "skills": [
            {
                "name": skill.name,
                "description": skill.description,
                "has_user_specified_description": skill.described,
                "path": skill.path,
                "scope": skill.scope,
                "user_invocable": skill.user_invocable,
                "disable_model_invocation": not skill.model_invocable,
                "enabled": True,
            }
            for skill in skills
        ]
    }
