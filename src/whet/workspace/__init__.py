"""The folder an agent works in: made, marked, compared, kept and removed."""

from whet.workspace.base import Method, Workspace
from whet.workspace.make import Workspaces
from whet.workspace.masking import mask_files
from whet.workspace.mounts import private_mounts
from whet.workspace.removing import remove_tree

__all__ = ["Method", "Workspace", "Workspaces", "mask_files", "private_mounts", "remove_tree"]
