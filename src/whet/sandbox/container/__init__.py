"""The container sandbox: images, containers of tasks, and the engine's calls."""
