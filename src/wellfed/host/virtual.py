"""Who is under this kernel: a hypervisor, or nobody."""

import re

from wellfed.host.cpuinfo import CpuInfo
from wellfed.host.door import Host
from wellfed.host.parse import gap, known
from wellfed.model.fact import Fact

DMI = "/sys/class/dmi/id"
# What firmware tables of virtual machines say (`sys_vendor` and `product_name` together).
_DMI_NAMES = (
    (r"VMware", "vmware"),
    (r"innotek|VirtualBox", "virtualbox"),
    (r"Xen", "xen"),
    (r"Microsoft Corporation Virtual Machine", "hyperv"),
    (r"Amazon EC2(?!.*metal)", "kvm"),
    (r"Google Compute Engine|Google Google", "kvm"),
    (r"Alibaba Cloud ECS|OpenStack|DigitalOcean|Hetzner vServer|KVM|RHEV|oVirt", "kvm"),
    (r"Parallels", "parallels"),
    (r"Bochs|QEMU", "qemu"),
)
# Vendor numbers of devices that only a hypervisor makes, as `/proc/bus/pci/devices` starts its second column.
_PCI_VENDORS = (("80ee", "virtualbox"), ("15ad", "vmware"), ("5853", "xen"), ("1414", "hyperv"))
_S390_SYSINFO = ((r"VM00 Control Program:\s*KVM", "kvm"), (r"VM00 Control Program:\s*z/VM", "zvm"))
_POWER_MACHINES = ((r"emulated by qemu", "kvm"), (r"PowerNV", "none"), (r"pSeries", "phyp"))


def hypervisor(host: Host, info: CpuInfo, key: str) -> Fact:
    """`none` on bare metal, `unnamed` when the CPU says that it is virtual and nothing says whose."""
    for found in (_said_by_name(host, key), _by_machine(host, info, key), _by_flag(host, info, key)):
        if found is not None:
            return found
    return gap(key, "/proc/cpuinfo", "unsupported", "nothing here says whether this is a virtual machine")


def _said_by_name(host: Host, key: str) -> Fact | None:
    xen = host.read("/sys/hypervisor/type")
    if xen.text:
        dom0 = "control_d" in (host.read("/proc/xen/capabilities").text or "")
        return known(key, "none" if dom0 else xen.text.strip(), xen.source, xen.text)
    texts = [host.read(f"{DMI}/{name}").text or "" for name in ("sys_vendor", "product_name")]
    for pattern, name in _DMI_NAMES:
        if re.search(pattern, " ".join(texts), re.IGNORECASE):
            return known(key, name, f"{DMI}/product_name", " ".join(texts))
    detected = host.run("systemd-detect-virt")
    if detected.text and re.fullmatch(r"[a-z][a-z0-9-]*", detected.text.strip()):
        return known(key, detected.text.strip(), detected.source, detected.text)
    return None


def _by_machine(host: Host, info: CpuInfo, key: str) -> Fact | None:
    """Machines that name their hypervisor in their own way: s390, POWER, Arm device trees."""
    sysinfo = host.read("/proc/sysinfo")
    if sysinfo.text:
        for pattern, name in _S390_SYSINFO:
            if re.search(pattern, sysinfo.text):
                return known(key, name, sysinfo.source, sysinfo.text)
        if "LPAR Number" in sysinfo.text:
            return known(key, "pr/sm", sysinfo.source, sysinfo.text)
    machine = " ".join(filter(None, (info.first("machine"), info.first("model"), info.first("platform"))))
    for pattern, name in _POWER_MACHINES:
        if re.search(pattern, machine):
            return known(key, name, "/proc/cpuinfo", machine)
    for path in ("/proc/device-tree/hypervisor/compatible", "/proc/device-tree/compatible"):
        text = host.read(path).text or ""
        match = re.search(r"xen|linux,kvm|linux,dummy-virt", text)
        if match:
            return known(key, "xen" if match.group() == "xen" else "kvm", path, text)
    devices = host.read("/proc/bus/pci/devices")
    for vendor, name in _PCI_VENDORS:
        if re.search(rf"^[0-9a-f]+\s+{vendor}", devices.text or "", re.MULTILINE):
            return known(key, name, devices.source)
    return None


def _by_flag(host: Host, info: CpuInfo, key: str) -> Fact | None:
    flags = info.first("flags")
    if flags is None:
        return None
    if "hypervisor" not in flags.split():
        return known(key, "none", "/proc/cpuinfo", detail="no `hypervisor` among the CPU flags")
    clocks = host.read("/sys/devices/system/clocksource/clocksource0/available_clocksource")
    for word, name in {"kvm-clock": "kvm", "hyperv": "hyperv", "xen": "xen"}.items():
        if word in (clocks.text or ""):
            return known(key, name, clocks.source, clocks.text)
    return known(key, "unnamed", "/proc/cpuinfo", detail="`hypervisor` is among the CPU flags")
