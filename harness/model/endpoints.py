"""Which models there are and how each is reached: the configuration, read once into plain values.

The file is ``$GROK_HOME/config.toml``, the same that grok reads: one ``[model.<id>]`` a model, defaults
for all in ``[models]``, shared parts in ``[model_providers.<id>]``.  Anything with an OpenAI-compatible
chat-completions endpoint is a model; what differs between servers is only these lines::

    [model.qwen]                                [model.local]
    model = "qwen3:8b"                          model = "any"
    base_url = "http://localhost:11434/v1"      base_url = "http://localhost:8080/v1"
    # Ollama; LM Studio listens on 1234         # a llama.cpp server

xAI's own models need no lines, only a key.  Keys come from the environment (``env_key``, ``XAI_API_KEY``),
from ``auth.json`` or from the model's ``api_key``; they are held as `Secret`, whose text no log shows.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from harness.limits import LIMITS, SIZES

__all__ = ["Catalog", "ConfigError", "Endpoint", "Secret", "engine_home", "load_catalog"]

#: Variables that hold a key of xAI; both are read by grok.
XAI_KEYS = ("XAI_API_KEY", "GROK_CODE_XAI_API_KEY")
XAI_URL = "https://api.x.ai/v1"

_EFFORTS = ("minimal", "low", "medium", "high", "xhigh")
#: xAI's models: name, context window.
_XAI_MODELS = {"grok-4.6": ("Grok 4.6", 500_000), "grok-4.5": ("Grok 4.5", 500_000)}
#: What a provider may say for its models.
_SHARED = (
    "base_url",
    "api_key",
    "env_key",
    "api_backend",
    "extra_headers",
    "env_http_headers",
    "query_params",
)
#: What ``[models]`` may say for all of them.
_GLOBAL = (
    "temperature",
    "top_p",
    "max_completion_tokens",
    "max_retries",
    "rate_limit_retry_threshold",
    "inference_idle_timeout_secs",
    "default_reasoning_effort",
)


class ConfigError(Exception):
    """The configuration cannot be used; the text names file, place and remedy."""


class Secret:
    """A text that must not be shown: printing it prints nothing of it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """One model: ``id`` is its table's name, ``model`` what the server calls it."""

    id: str
    model: str
    name: str
    url: str  #: of chat completions, query included
    key: Secret | None = None
    key_origin: str = ""  #: where the key came from, for error texts
    description: str = ""
    context_window: int = SIZES.context_window
    compact_at: int = SIZES.compact_percent  #: percent of it that may be used before a summary is made
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    headers: Mapping[str, Secret] = dataclasses.field(default_factory=dict)
    max_retries: int = SIZES.model_retries
    rate_limit_tries: int = SIZES.rate_limit_tries
    idle_timeout: float = LIMITS.model_idle
    efforts: tuple[str, ...] = ()  #: reasoning efforts that may be chosen; none: it has no such setting
    effort: str | None = None
    hidden: bool = False

    def secrets(self) -> Iterator[str]:
        """Texts that no error may show."""
        if self.key is not None:
            yield self.key.reveal()
        for value in self.headers.values():
            yield value.reveal()


@dataclasses.dataclass(frozen=True, slots=True)
class Catalog:
    """The models in the order of the configuration.  ``default`` is one of them, None without any."""

    endpoints: Mapping[str, Endpoint]
    default: str | None
    notes: tuple[str, ...] = ()  #: models that were left out, and why

    def find(self, name: str) -> Endpoint | None:
        """The model with this id, else the one that its server calls so."""
        if name in self.endpoints:
            return self.endpoints[name]
        return next((e for e in self.endpoints.values() if e.model == name), None)


def engine_home(environ: Mapping[str, str]) -> Path:
    """The engine's home folder: ``$GROK_HOME``, else ``~/.grok``."""
    if home := environ.get("GROK_HOME"):
        return Path(home)
    return Path(environ.get("HOME") or "/") / ".grok"


def load_catalog(home: Path, environ: Mapping[str, str]) -> Catalog:
    """Read the configuration.  Raises ConfigError; a home without one has xAI's models, given a key."""
    config = _toml(home / "config.toml")
    xai = _xai_key(home, environ)
    tables = dict(_tables(config))
    if xai is not None:
        for name in _XAI_MODELS:
            tables.setdefault(name, {})
    endpoints = dict[str, Endpoint]()
    notes = list[str]()
    for name, table in tables.items():
        backend = table.get("api_backend", "chat_completions")
        if backend != "chat_completions":
            notes.append(f"[model.{name}] is left out: api_backend {backend!r} is not spoken here")
        elif "base_url" not in table and name not in _XAI_MODELS:
            notes.append(f"[model.{name}] is left out: it has no base_url")
        else:
            endpoints[name] = _endpoint(name, table, environ, xai)
    wanted = config.get("models", {}).get("default") if isinstance(config.get("models"), dict) else None
    known = Catalog(endpoints, None).find(str(wanted)) if wanted else None
    default = known.id if known else next(iter(endpoints), None)
    return Catalog(endpoints, default, tuple(notes))


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error


def _tables(config: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each model's table with what it inherits: from its provider, then from ``[models]``."""
    shared = config.get("models")
    shared = shared if isinstance(shared, dict) else {}
    providers = config.get("model_providers")
    models = config.get("model")
    for name, own in (models if isinstance(models, dict) else {}).items():
        if not isinstance(own, dict):
            raise ConfigError(f"[model.{name}] must be a table")
        table = {key: shared[key] for key in _GLOBAL if key in shared}
        if provider := own.get("model_provider"):
            found = providers.get(provider) if isinstance(providers, dict) else None
            if not isinstance(found, dict):
                raise ConfigError(
                    f"[model.{name}] names model_provider {provider!r}, which is not configured"
                )
            table |= {key: found[key] for key in _SHARED if key in found}
        table |= own
        if isinstance(session := config.get("session"), dict):
            table["compact_at"] = session.get("auto_compact_threshold_percent")
        table["extra_headers"] = _headers(shared.get("extra_headers"), table.get("extra_headers"))
        yield name, table


def _headers(base: Any, own: Any) -> dict[str, str]:
    """The model's headers over those for all; names do not differ by case."""
    merged = dict[str, tuple[str, str]]()
    for source in (base, own):
        for name, value in source.items() if isinstance(source, dict) else ():
            merged[name.lower()] = (name, str(value))
    return dict(merged.values())


def _endpoint(
    name: str, table: Mapping[str, Any], environ: Mapping[str, str], xai: Secret | None
) -> Endpoint:
    shown, window = _XAI_MODELS.get(name, (name, SIZES.context_window))
    base = str(table.get("base_url") or XAI_URL)
    key, origin = _key(name, table, environ, xai if base.startswith(XAI_URL) else None)
    efforts = _efforts(table, name in _XAI_MODELS)
    effort = table.get("reasoning_effort") or table.get("default_reasoning_effort")
    usual = "high" if name in _XAI_MODELS else "medium"
    try:
        return Endpoint(
            id=name,
            model=str(table.get("model") or name),
            name=str(table.get("name") or shown),
            url=_url(name, base, table.get("query_params")),
            key=key,
            key_origin=origin,
            description=str(table.get("description") or ""),
            context_window=int(table.get("context_window") or window),
            compact_at=int(table.get("compact_at") or SIZES.compact_percent),
            max_tokens=_number(table, "max_completion_tokens", int),
            temperature=_number(table, "temperature", float),
            top_p=_number(table, "top_p", float),
            headers=_secret_headers(table, environ),
            max_retries=int(table.get("max_retries", SIZES.model_retries)),
            rate_limit_tries=int(table.get("rate_limit_retry_threshold", SIZES.rate_limit_tries)),
            idle_timeout=float(table.get("inference_idle_timeout_secs", LIMITS.model_idle)),
            efforts=efforts,
            effort=str(effort or usual) if efforts else None,
            hidden=bool(table.get("hidden")),
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"[model.{name}] has a value of the wrong type: {error}") from error


def _number(table: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    return None if table.get(name) is None else kind(table[name])


def _efforts(table: Mapping[str, Any], built_in: bool) -> tuple[str, ...]:
    listed = table.get("reasoning_efforts")
    if isinstance(listed, list) and listed:
        values = (e.get("value") or e.get("id") if isinstance(e, dict) else e for e in listed)
        return tuple(str(v) for v in values if v)
    if built_in:
        return _EFFORTS[1:]  # xAI knows no minimal one
    return _EFFORTS if table.get("supports_reasoning_effort") else ()


def _url(name: str, base: str, query: Any) -> str:
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"[model.{name}] base_url = {base!r}: must begin with http:// or https://")
    merged = dict(parse_qsl(parts.query))
    if isinstance(query, dict):
        merged |= {str(k): str(v) for k, v in query.items()}
    path = f"{parts.path.rstrip('/')}/chat/completions"
    return urlunsplit((parts.scheme, parts.netloc, path, urlencode(merged), ""))


def _secret_headers(table: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Secret]:
    headers = dict(table["extra_headers"]) if "extra_headers" in table else {}
    named = table.get("env_http_headers")
    for header, variable in named.items() if isinstance(named, dict) else ():
        if (value := environ.get(str(variable), "").strip()) != "":
            headers = {k: v for k, v in headers.items() if k.lower() != header.lower()} | {header: value}
    return {name: Secret(str(value)) for name, value in headers.items()}


# -- keys ------------------------------------------------------------------------------------------


def _key(
    name: str, table: Mapping[str, Any], environ: Mapping[str, str], xai: Secret | None
) -> tuple[Secret | None, str]:
    if table.get("api_key"):
        return Secret(str(table["api_key"])), f"api_key of [model.{name}]"
    named = table.get("env_key") or ()
    names = [str(n) for n in ([named] if isinstance(named, str) else named)]
    for variable in names:
        if environ.get(variable):
            return Secret(environ[variable]), f"the environment variable {variable}"
    if names:
        return None, f"none: {' and '.join(names)} are not set" if len(
            names
        ) > 1 else f"none: {names[0]} is not set"
    return (xai, "XAI_API_KEY or auth.json") if xai else (None, "none")


def _xai_key(home: Path, environ: Mapping[str, str]) -> Secret | None:
    for variable in XAI_KEYS:
        if environ.get(variable):
            return Secret(environ[variable])
    try:
        scopes = json.loads((home / "auth.json").read_bytes())
    except (OSError, ValueError):
        return None
    # One entry a scope.  Only an API key is of use here: a login's token is for xAI's own client.
    for scope, entry in scopes.items() if isinstance(scopes, dict) else ():
        value = entry.get("key") or entry.get("api_key") if isinstance(entry, dict) else entry
        if "api_key" in scope and isinstance(value, str) and value:
            return Secret(value)
    return None
