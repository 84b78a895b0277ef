"""Targets: hardware times software, and the catalogue of what the DLA takes there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.lazy import lazily

if TYPE_CHECKING:
    from orinport.targets.catalogue import catalogue_rows, log_messages, rows_for
    from orinport.targets.load import list_targets, load_target

__all__ = ["DEFAULT_TARGET", "catalogue_rows", "list_targets", "load_target", "log_messages", "rows_for"]

DEFAULT_TARGET = "orin-agx-64gb/jp6.2"
"""The target that is meant where none is named."""

_HOMES = {
    "catalogue_rows": "orinport.targets.catalogue",
    "log_messages": "orinport.targets.catalogue",
    "rows_for": "orinport.targets.catalogue",
    "list_targets": "orinport.targets.load",
    "load_target": "orinport.targets.load",
}

__getattr__ = lazily(__name__, _HOMES)
