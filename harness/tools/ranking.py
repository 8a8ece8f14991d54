"""Which of many short texts fit a question best: the usual BM25 over words without their endings."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Mapping

__all__ = ["ranked"]

_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])|[^\W_A-Za-z0-9]+")
_ENDINGS = ("ings", "ing", "ies", "ed", "es", "s", "e", "y")
#: The customary constants: how soon a repeated word counts no more, and how much long texts are held back.
_SATURATION, _LENGTH = 1.2, 0.75


def ranked(texts: Mapping[str, str], query: str) -> list[tuple[str, float]]:
    """Names of the texts that share a word with the query and their scores, the best first."""
    words = {name: collections.Counter(_words(text)) for name, text in texts.items()}
    mean = sum(counted.total() for counted in words.values()) / len(words) if words else 1
    spread = collections.Counter(word for counted in words.values() for word in counted)
    scores = dict[str, float]()
    for word in dict.fromkeys(_words(query)):
        rarity = math.log(1 + (len(words) - spread[word] + 0.5) / (spread[word] + 0.5))
        for name, counted in words.items():
            if times := counted[word]:
                held = _SATURATION * (1 - _LENGTH + _LENGTH * counted.total() / mean)
                gain = rarity * times * (_SATURATION + 1) / (times + held)
                scores[name] = scores.get(name, 0.0) + gain
    return sorted(scores.items(), key=lambda found: (-found[1], found[0]))


def _words(text: str) -> list[str]:
    return [_stem(word.lower()) for word in _WORD.findall(text)]


def _stem(word: str) -> str:
    return next(
        (word[: -len(end)] for end in _ENDINGS if word.endswith(end) and len(word) > len(end) + 2), word
    )
