"""Cases of host checks by layer: `CASES`, and `WORDS` and `KEYS` for random machines, each optional."""
