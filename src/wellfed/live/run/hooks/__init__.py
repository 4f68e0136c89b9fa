"""The folder that goes on PYTHONPATH. It holds `sitecustomize.py` alone: whatever else lay here could be imported by the
user's program in place of its own."""
