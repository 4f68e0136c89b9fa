"""Host checks by layer: `<layer>.toml` compares facts, `<layer>.py` thinks."""
