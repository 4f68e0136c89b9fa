"""argv in, text and exit codes out: one file per verb; nothing else prints."""
