"""What paths, control groups, kernel parameters and process names tell of their owner, and what is everybody's.

A path stays readable: folders that every system has keep their names (`/mnt`, `lib`, `site-packages`,
`kubepods.slice`), devices and versions too; each other part becomes `dir-1`, `dir-2`..., the same wherever it
stands. So `/mnt/acme-nas/llm` is `/mnt/dir-1/dir-2`, and a control group's limits are still found under its name.
Everything here is a list of what may stay: what nobody thought of is hidden."""

import itertools
import re
from collections.abc import Callable

Name = Callable[[str, str], str]
"""The pseudonym of a name: `name("dir", "acme-nas")` is `dir-1`."""

HIDDEN = "[redacted]"

# First folders of a path. Deeper down, `data` or `scratch` may be anything.
_TOP_TEXT = """
    bin boot data datasets dev efi etc home lib lib32 lib64 lustre media mnt nfs nix opt proc root run sbin
    scratch snap srv sys tmp usr var
"""
_TOP = frozenset(_TOP_TEXT.split())
_WORDS_TEXT = """
    bin cache cgroup cpu etc fs include lib lib32 lib64 libexec local log net nvidia opt run sbin self share
    src store sys usr unified systemd hybrid shm pts mqueue hugepages mapper block disk by-id by-uuid
    by-path by-label null zero fuse python site-packages dist-packages lib-dynload venv .venv env envs conda
    miniconda3 anaconda3 miniforge3 mambaforge micromamba pyenv .pyenv versions uv .local .cache torch nccl
    cuda cudnn cuda_runtime cublas rocm rocm_sdk hpcx ompi openmpi ucx mellanox ofed targets extras compat
    stubs alternatives tuned active_profile irqbalance default nvidia-container-runtime config.toml
    nccl.conf os-release version.py version.json version.txt version .info __init__.py ld.so.conf.d
    ld.so.cache profiler torchinductor docker overlay overlay2 containerd containers kubelet pods volumes
    storage snapshots diff merged lxc lxcfs machines snap flatpak secrets kubernetes.io serviceaccount
    container .containerenv .dockerenv .singularity.d nvidia-persistenced nvidia-fabricmanager nvidia-mps
    socket resolv.conf hostname hosts core crash apport systemd-coredump init modprobe poweroff sh bash
    system.slice user.slice machine.slice init.scope app.slice session.slice slurm slurmd slurmstepd.scope
    system cpus mems proc torque pbs sge lsf user buildkit kubepods burstable besteffort guaranteed
    libpod_parent actions_job ecs sysctl sysctl.d sysctl.conf tuned.conf profiles config.yaml balanced
    throughput-performance latency-performance network-latency network-throughput accelerator-performance powersave
    desktop hpc-compute virtual-guest virtual-host realtime cpu-partitioning
"""
_WORDS = frozenset(_WORDS_TEXT.split())
_DEVICE = re.compile(
    r"(?:sd|vd|xvd|hd)[a-z]{1,3}\d*|nvme\d+(?:c\d+)?(?:n\d+)?(?:p\d+)?|mmcblk\d+(?:p\d+)?|md\d+|dm-\d+|loop\d+|zram\d+|ram\d+"
    r"|sr\d+|pmem\d+|nbd\d+|tty[A-Z]*\d*|hugepages-?\w{0,12}|nvidia[\w-]*|infiniband|uverbs\d+|vfio"
)
_FORM = re.compile(
    r"\.{0,2}|\d{1,6}|v?\d+(?:\.\d+)+|python\d?(?:\.\d+)?t?(?:\.zip)?|python\d+\.zip|(?:cuda|rocm|ucx|openmpi)-[\d.]+"
    r"|(?:x86_64|aarch64|arm64|i386|powerpc64le|ppc64le|s390x|riscv64)-linux(?:-gnu)?|(?:amd|intel|kernel)?64"
    r"|lib[\w+-]+\.(?:so|a)(?:\.\d+)*"
    r"|[A-Za-z]\w*(?:[._-]\w+)*-\d[^/]*\.(?:dist|egg)-info"
    r"|user-\d+\.slice|user@\d+\.service|session-[c\d]+\.scope|(?:uid|job|step|task)_(?:\d+|batch|extern|interactive)"
    r"|(?:cgroup|cpu|cpuset|cpuacct|memory|io|blkio|pids|hugetlb|rdma|misc|devices|freezer|net_cls|net_prio|perf_event)"
    r"(?:[.,][a-z][\w.,]*)?|tasks|notify_on_release"
    r"|(?:containerd|docker|kubelet|sshd?|cron|slurmd|systemd-[a-z]+|nvidia-[a-z]+|irqbalance|tuned)\.(?:service|socket)"
    r"|(?:dir|user|host|hex|uuid|serial|mail|ipv4|ipv6|mac|guid|nic|process)-\d+|GPU-uuid-\d+|\[redacted\]"
)
# What a container engine puts around the name of a container or a pod.
_ENGINE = re.compile(
    r"((?:(?:kubepods|burstable|besteffort|guaranteed|docker|cri-containerd|crio-conmon|crio|libpod-conmon|libpod|podman"
    r"|lxc\.payload|lxc\.monitor|lxc|machine|nerdctl|run|pod)"
    r"(?:[-:_]|\.(?!(?:slice|scope|service|mount)$)|(?=$|\.)|(?<=pod)(?=[0-9a-f_-]{8}|(?:dir|hex|uuid)-\d)))*)"
    r"(.*?)((?:\.(?:slice|scope|service|mount))?)"
)
_CONF = re.compile(r"(\d{1,3}[-_])?(.+)(\.conf)")
"""A file of a folder such as sysctl.d: the number decides the order, the ending whether it counts."""
_KERNEL_FILE = re.compile(r"(vmlinuz|vmlinux|bzImage|initrd\.img|initramfs|config|System\.map)-(.+)")
_PATH = re.compile(r"(?<![\w./~<%+}-])/(?:(?:[\w.+@%~#!&-]|:(?![/\s]|$))+/?)+")


def hide_path(path: str, name: Name) -> str:
    """An absolute path with the owner's part of it replaced. The kernel's own trees stay, but for control groups."""
    if path.startswith(("/proc/", "/sys/")) and not path.startswith("/sys/fs/cgroup/"):
        return path
    parts = path.split("/")
    return "/".join(
        part if depth == 1 and part in _TOP else _hide_part(part, name, device=parts[1:2] == ["dev"])
        for depth, part in enumerate(parts)
    )


def _hide_part(part: str, name: Name, *, device: bool = False) -> str:
    if part in _WORDS or _FORM.fullmatch(part) or (device and _DEVICE.fullmatch(part)):
        return part
    if kernel := _KERNEL_FILE.fullmatch(part):
        return f"{kernel[1]}-{hide_release(kernel[2])}"
    if conf := _CONF.fullmatch(part):
        return f"{conf[1] or ''}{_hide_part(conf[2], name)}.conf"
    engine = _ENGINE.fullmatch(part)
    before, inner, after = engine.groups() if engine else ("", part, "")
    if not before:
        return name("dir", part)
    return before + (name("dir", inner) if inner and not _FORM.fullmatch(inner) else inner) + after


def paths_in(text: str) -> list[str]:
    """The absolute paths that a text holds."""
    return _PATH.findall(text)


def hide_paths(text: str, name: Name) -> str:
    """A text with its absolute paths replaced as `hide_path` does."""
    if "/" not in text:
        return text
    return _PATH.sub(lambda match: hide_path(match[0], name), text)


# -- mounts ------------------------------------------------------------------------------------------------

_NO_DEVICE_TEXT = """
    9p auto autofs binfmt_misc bpf cgroup cgroup2 configfs cpuset debugfs devpts devtmpfs efivarfs fusectl
    hugetlbfs lxcfs mqueue none nsfs overlay proc pstore ramfs rootfs rpc_pipefs securityfs selinuxfs shm
    squashfs sunrpc sysfs systemd-1 tmpfs tracefs udev
"""
_NO_DEVICE = frozenset(_NO_DEVICE_TEXT.split())
_OPTIONS_TEXT = """
    rw ro relatime noatime nodiratime atime strictatime lazytime nosuid suid nodev dev noexec exec sync
    async dirsync mand bind remount private shared slave nosymfollow defaults seclabel acl noacl user_xattr
    nouser_xattr xattr discard nodiscard barrier nobarrier data errors commit stripe delalloc nodelalloc
    dioread_nolock dax max_batch_time journal_checksum journal_async_commit inode_readahead_blks quota
    noquota usrquota grpquota prjquota uquota gquota pquota attr2 inode64 inode32 logbufs logbsize logdev
    sunit swidth allocsize largeio nolargeio wsync compress compress-force space_cache ssd nossd autodefrag
    flushoncommit thread_pool max_inline size nr_inodes nr_blocks huge mpol mode uid gid pagesize min_size
    hidepid ptmxmode newinstance nsdelegate memory_recursiveprot memory_localevents
    memory_hugetlb_accounting favordynmods cpu cpuacct cpuset memory blkio devices freezer hugetlb net_cls
    net_prio perf_event pids rdma misc clone_children vers nfsvers minorversion mountvers mountproto
    noprefix rsize wsize namlen hard soft softerr intr nointr proto timeo retrans sec local_lock lookupcache
    nconnect max_connect acregmin acregmax acdirmin acdirmax actimeo ac noac cto nocto resvport noresvport
    lock nolock flock noflock localflock fsc nofsc bg fg retry trunkdiscovery xprtsec nodcache echo_interval
    cache serverino noserverino handletimeout closetimeo max_credits multichannel lazystatfs nouser_fid2path
    checksum nochecksum encrypt wfs_conn num_cpu readcache writecache coherent forcedirect redirect_dir
    index metacopy xino nfs_export userxattr volatile uuid resuid resgid user_id group_id allow_other
    default_permissions max_read blksize fd pgrp maxproto minproto direct pipe_ino iocharset codepage fmask
    dmask umask shortname utf8 trans access msize posixacl dfltuid dfltgid
"""
_OPTIONS = frozenset(_OPTIONS_TEXT.split())
_OPTION_VALUE = re.compile(
    r"[\d.]{1,20}[kKmMgGtT%]?|0x[0-9a-f]{1,8}|on|off|yes|no|auto|always|never|within_size|advise|none|default|strict|loose|all"
    r"|tcp6?|udp6?|rdma6?|sys|krb5[ip]?|ordered|writeback|journal|continue|remount-ro|panic|(?:zstd|lzo|zlib)(?::\d+)?|v2|pos"
    r"|positive|virtio|mmap|readahead|fscache|utf8|ascii|mixed|directory|follow|nofollow"
)


def hide_source(source: str, fs: str, name: Name) -> str:
    """What is mounted: devices and pseudo file systems stay, servers and volumes get pseudonyms."""
    if source in (fs, "", HIDDEN) or source in _NO_DEVICE:
        return source
    server = re.fullmatch(r"(//|)([^/:]+(?:@\w+)?)(:?)(/.*|)", source)
    if server and (server[1] or server[3]):
        host = server[2] if _FORM.fullmatch(server[2]) else name("host", server[2].partition(".")[0])
        return f"{server[1]}{host}{server[3]}{hide_path(server[4], name)}"
    return (
        "/".join(_hide_part(part, name) for part in source.split("/"))
        if source[0] != "/"
        else hide_path(source, name)
    )


def hide_option(option: str) -> str:
    """One mount option: known ones stay with a number or a known word, others are hidden."""
    key, equals, value = option.partition("=")
    if key not in _OPTIONS:
        return HIDDEN
    return option if not equals or _OPTION_VALUE.fullmatch(value) else f"{key}={HIDDEN}"


# -- what the kernel says of itself ------------------------------------------------------------------------

_RELEASE_WORDS = re.compile(
    r"\d+[a-z]?\d*|generic|cloud|amd64|arm64|aarch64|x86|64|64k|s390x|ppc64le|riscv64|aws|azure|gcp|gke|gkeop|oracle|ibm"
    r"|nvidia|bluefield|tegra|lowlatency|realtime|preempt|rt\d*|PREEMPT|el\d+\w*|fc\d+|amzn\d+|uek|default|lp\d+|pve|bpo\d*"
    r"|deb\d+u?\d*|hwe|fde|kvm|virtual|server|microsoft|standard|WSL2|Ubuntu|Microsoft|arch\d*|zen\d*|debug|rc\d*|raspi|v8"
    r"|oe\d+\w*|al\d|tlinux\d?|flatcar|coreos|talos|azl\d+|cm\d+|tinycon|bigmem|desktop|lts|git|gentoo|dist|custom|boot|img|gz"
)


def hide_release(release: str) -> str:
    """A kernel release with its numbers and the words of distributions; a name that its builder chose becomes
    `custom`: `6.1.90-acme-v12` is `6.1.90-custom`."""
    numbers = re.match(r"\d+(?:\.\d+)*", release)
    if numbers is None:
        return release if _known_words(release) else "custom"
    rest = release[numbers.end() :]
    return release if _known_words(rest) else f"{numbers[0]}-custom"


def _known_words(text: str) -> bool:
    return all(map(_RELEASE_WORDS.fullmatch, filter(None, re.split(r"[-.+_~]", text))))


_PARAMETER_TEXT = """
    acpi acpi_cppc amd_iommu amd_pstate apic audit BOOT_IMAGE cgroup.memory cgroup_disable cgroup_enable
    cgroup_no_v1 clocksource cma console coherent_pool cpufreq.default_governor cpuidle.governor cpuidle.off
    cpuidle_sysfs_switch cpu_init_udelay crashkernel debug default_hugepagesz dma_debug driver_async_probe
    earlycon earlyprintk elevator fsck.mode hardened_usercopy hashdist highres hlt hpet hugepages hugepagesz
    hugetlb_cma hugetlb_free_vmemmap idle init init_on_alloc init_on_free initcall_debug initrd
    intel_idle.max_cstate intel_iommu intel_pstate intremap iomem iommu iommu.forcedac iommu.passthrough
    iommu.strict irqaffinity irqpoll isolcpus kaslr kpti kthread_cpus kvm-intel.nested l1tf log_buf_len
    loglevel lpj lsm maxcpus mce mds mem memhp_default_state memmap memory_hotplug.memmap_on_memory memtest
    mitigations mmio_stale_data movable_node net.ifnames biosdevname nmi_watchdog no_timer_check noapic
    noefi nofail nohlt nohz nohz_full noibpb noibrs nohugeiomap nokaslr nomodeset nopti nopv noresume
    noretpoline noreplace-smp nosmp nosmt nosoftlockup nospec_store_bypass_disable nospectre_v1 nospectre_v2
    noswap notsc nowatchdog nox2apic nr_cpus numa numa_balancing numa_zonelist_order nvme.poll_queues
    nvme_core.io_timeout nvme_core.multipath panic pci pcie_acs_override pcie_aspm pcie_bus_perf
    pcie_port_pm percpu_alloc possible_cpus preempt printk.time processor.max_cstate psi pti quiet
    rcu_nocb_poll rcu_nocbs rd_NO_PLYMOUTH rdinit reboot retbleed rhgb ro root rootdelay rootfstype
    rootflags rootwait rw sched_debug schedstats security selinux enforcing apparmor single skew_tick
    slab_nomerge slub_debug smt softlockup_panic spec_rstack_overflow spec_store_bypass_disable spectre_v2
    splash split_lock_detect srso swapaccount swiotlb systemd.unified_cgroup_hierarchy
    systemd.legacy_systemd_cgroup_controller systemd.show_status systemd.log_level tboot threadirqs topology
    tp_printk transparent_hugepage trace_clock tsc tsx tsx_async_abort udev.log_level unknown_nmi_panic vdso
    vga vsyscall vt.handoff watchdog workqueue.power_efficient x2apic_phys xen_blkfront.max zswap.enabled
    zswap.compressor
"""
_PARAMETERS = frozenset(_PARAMETER_TEXT.split())
# Parameters of modules that bear on speed.
_MODULE = re.compile(
    r"(?:nvidia\w*|nouveau|amdgpu|mlx[45]\w*|nvme\w*|i915|intel_\w+|amd_\w+|processor|cpufreq|cpuidle|rcutree|rcupdate|rcu_nocb"
    r"|kvm\w*|vfio\w*|iommu|workqueue|psi|random|page_reporting|page_alloc|zswap|zram|scsi_mod|dm_mod|usbcore|pcie_\w+"
    r"|acpi\w*|efi|printk|module|modprobe|ahci|ixgbe|i40e|ice|ena|efa|gve|hv_\w+|virtio\w*|tcp_\w+|ipv6|edac_core)\.\w+"
)


def hide_parameters(text: str, name: Name) -> str:
    """Kernel parameters that are known, their paths without the owner's part; each other one is hidden whole:
    addresses, volumes, installers and a site's own switches."""
    words = itertools.takewhile("--".__ne__, text.split())  # the rest goes to the first program
    return " ".join(_hide_parameter(word, name) for word in words)


def _hide_parameter(word: str, name: Name) -> str:
    key = word.partition("=")[0]
    if word == HIDDEN or "LABEL=" in word or not (key in _PARAMETERS or _MODULE.fullmatch(key)):
        return HIDDEN
    return hide_paths(word, name)


# -- processes ---------------------------------------------------------------------------------------------

_DAEMONS_TEXT = """
    kthreadd systemd init tini dumb-init pause containerd containerd-shim dockerd kubelet
    crio irqbalance tuned slurmd slurmstepd nvidia-cuda-mps nvidia-cuda-mps-control nvidia-cuda-mps-server
    nvidia-persiste nvidia-persistenced nv-fabricmanage nv-fabricmanager nv-hostengine nvidia-imex
    dcgm-exporter Xorg
"""
DAEMONS = frozenset(_DAEMONS_TEXT.split())
"""Programs of the system that readers look for or that everybody has, as the kernel cuts their names (15 characters)
and in full. Of all others not even that they run is recorded."""

_IN_LOG = re.compile(
    r"((?:, name=|Killed process \d+ \(|Comm: |comm=|INFO: task |,task=|stuck for \d+s! \[)\"?)([^\s,()\"]+?)"
    r"(?=\"?(?:[,)\s]|:\d+ blocked|:\d+\]|$))|()(\S+)(?= invoked oom-killer)"
)


def hide_process(program: str, name: Name) -> str:
    """The name of a program when it is a common one, else a pseudonym."""
    known = program in DAEMONS or re.fullmatch(r"python[\d.]*|process-\d+|\[.*\]|<.*>", program)
    return program if known or not program else name("process", program)


def hide_in_log(text: str, name: Name) -> str:
    """Lines of a kernel log without the names of the programs that it blames, and without their groups' paths."""

    def hide(match: re.Match[str]) -> str:
        return (match[1] or "") + hide_process(match[2] or match[4], name)

    return hide_paths(_IN_LOG.sub(hide, text), name)
