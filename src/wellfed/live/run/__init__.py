"""A command of the user's, run and watched: no change to its code.

`hooks/` goes on PYTHONPATH: its one file loads `inside/` in every Python process of the command. `inside/` needs nothing but
the standard library, since the user's environment need not hold wellfed. Each process that trains or serves writes a ring file
(`inside/ring.py`), which is read when the command has ended, however it ended."""
