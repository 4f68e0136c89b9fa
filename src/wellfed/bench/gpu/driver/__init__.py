"""The driver tier: libcuda by ctypes, with kernels of our own as PTX text. Needs no torch, no toolkit and no compiler."""
