"""Changing the machine, and the way back: knobs, the journal, and what is done in which order."""
