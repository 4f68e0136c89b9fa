"""Why the verdicts on the network are right on the recorded H200 machine."""

ARGUED = {
    "NET02": "virtio tells no speed, so nobody can say what fills it",
    "NET06": "no packet was dropped by softnet_stat",
    "NET07": "asked for serving only, and both queues are 4096",
    "NET08": "asked for serving only, and congestion control is bbr",
    "NET09": "tcp_sack and tcp_timestamps are 1",
    "NET17": "the count of neighbours is not in the recording",
    "NET18": "0 of 262144 connections",
    "NET19": "no RDMA folder, and no WORLD_SIZE: nothing says that it works with others",
    "NET20": "in a container, whose clock is the host's",
    "NET21": "no job over several machines is set up",
    "NET10": "virtio tells no speed, and it lost no packet",
    "NET11": "asked for serving only",
    "NET12": "virtio tells no speed",
    "NET13": "virtio tells no speed",
    "NET15": "`rx_missed_errors` of eth0 is 0",
    "NET16": "virtio says -1 for its speed",
    "NET22": "the recording holds no two looks at the counters",
}
