"""The two calls that put a process in its place: CPU affinity and memory policy. Children inherit both, and exec keeps them."""

import ctypes
import os
import platform
from collections.abc import Sequence

MODES = {"default": 0, "preferred": 1, "bind": 2, "interleave": 3}
"""linux/mempolicy.h."""
SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "ppc64le": 261, "s390x": 270}
"""Number of set_mempolicy(2) by machine: the syscall tables of the kernel."""
_WORD = ctypes.sizeof(ctypes.c_ulong) * 8


def set_affinity(cpus: Sequence[int], pid: int = 0) -> None:
    """Raises OSError when the kernel refuses: a CPU outside the cpuset, or another user's process."""
    os.sched_setaffinity(pid, cpus)


def set_memory_policy(policy: str, nodes: Sequence[int]) -> None:
    """The policy of this thread and of all that it starts. Raises OSError: EPERM under a filter of system calls, EINVAL for a
    node that is not there or not allowed, ENOSYS on a machine whose number we don't know."""
    number = SET_MEMPOLICY.get(platform.machine())
    if number is None:
        raise OSError(38, f"no set_mempolicy known for {platform.machine()}")
    words = (max(nodes, default=0) // _WORD) + 1
    mask = (ctypes.c_ulong * words)()
    for node in nodes:
        mask[node // _WORD] |= 1 << (node % _WORD)
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel takes one off the number of bits.
    if libc.syscall(number, MODES[policy], mask if nodes else None, words * _WORD + 1 if nodes else 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
