"""The steps that brought the tables to where they are."""

from __future__ import annotations
