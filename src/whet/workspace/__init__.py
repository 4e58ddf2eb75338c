"""The folder an agent works in: made, marked, compared, kept and removed."""

from whet.workspace.base import Method, Workspace
from whet.workspace.make import Workspaces
from whet.workspace.mounts import private_mounts

__all__ = ["Method", "Workspace", "Workspaces", "private_mounts"]
