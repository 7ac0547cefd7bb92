"""The writer: one thread per process that runs commands in transactions."""
