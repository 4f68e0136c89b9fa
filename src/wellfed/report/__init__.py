"""A Case in, text out: terminal, JSON, Markdown, HTML. Pure: nothing here looks at a machine or a file."""
