"""Searching in files: ``rg`` where it is installed, else our own search with the same output.

`run` is not imported here: our own search is a program, and starts twice as fast without a loop.
"""

from __future__ import annotations

from harness.workspace.search.request import Mode, SearchRequest, SearchResult

__all__ = ["Mode", "SearchRequest", "SearchResult"]
