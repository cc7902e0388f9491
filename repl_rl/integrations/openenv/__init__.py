"""An environment for the package `openenv`, and its server."""
