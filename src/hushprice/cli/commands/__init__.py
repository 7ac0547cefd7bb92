"""The commands, one file per command."""
