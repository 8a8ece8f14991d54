"""Grok Gateway: Grok Build as an always-on user service for ACP clients."""

__version__ = "0.1.0"
