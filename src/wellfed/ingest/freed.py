"""Memory that is freed is kept for the next array, rather than given back to the system and asked for again.

Array work frees and asks for the same few megabytes thousands of times. By default glibc hands blocks of that size
back at once, and each page must then be mapped and cleared anew: on a virtual machine that took longer than the work
itself (7 us a page measured, against 0.3 us to fill it).
"""

import ctypes
import sys
from functools import cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From malloc.h."""
KEPT_BYTES = 256 << 20
LARGEST_BYTES = 32 << 20
"""The most that glibc takes as the limit above which a block is mapped by itself (HEAP_MAX_SIZE / 2)."""


@cache
def keep_freed_memory() -> bool:
    """Set it for this process, once; False where the C library is not glibc."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGEST_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
