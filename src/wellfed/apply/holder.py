"""A process that holds `/dev/cpu_dma_latency` open, for that is how long the kernel heeds it. Nothing else: it uses the
standard library only and is started as a file, so that it is small and needs nothing that could go away.

    holder.py LOCK_FD DEVICE MICROSECONDS

The descriptor is of a locked file; the lock is shared with whoever started it and lasts as long as either lives.
"""

import os
import signal
import struct
import sys


def main() -> None:
    lock, device, value = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    os.write(fd, struct.pack("=i", value))
    # The kernel tells the lowest of all that are held.
    (now,) = struct.unpack("=i", os.pread(fd, 4, 0))
    if now > value:
        sys.exit(f"{device} reads {now} after {value} was written")
    with open("/proc/self/stat", encoding="ascii", errors="replace") as stat:  # noqa: PTH123
        start = stat.read().rpartition(")")[2].split()[19]
    os.pwrite(lock, f"{value} (process {os.getpid()}, started {start})\n".encode(), 0)
    os.write(1, b"held\n")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    while True:
        signal.pause()


main()
