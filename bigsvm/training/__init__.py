"""The outer loop, its checkpoints and its events."""
