"""What names, addresses and secrets look like in a text. `redact.py` says what becomes of them."""

import re

PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
TOKEN = re.compile(
    r"\bhf_[A-Za-z0-9]{8,}|\bsk-[\w-]{12,}|\bgh[pousr]_[A-Za-z0-9]{12,}|\bgithub_pat_\w{12,}|\bglpat-[\w-]{12,}"
    r"|\bxox[a-z]-[\w-]{8,}|\b(?:AKIA|ASIA)[0-9A-Z]{12,}|\bAIza[\w-]{20,}|\bnvapi-[\w-]{12,}|\bya29\.[\w-]{12,}"
    r"|\bnpm_[A-Za-z0-9]{20,}|\bpypi-[\w-]{16,}|\bdapi[0-9a-f]{24,}|\beyJ[\w-]{6,}(?:\.[\w-]*){1,2}"
)
BEARER = re.compile(r"\b(bearer|basic|token)(\s+)(?=[^\s]*\d)[\w.~+/-]{8,}=*", re.IGNORECASE)
URL_LOGIN = re.compile(r"(?<=://)[^\s/@:\"']+(?::[^\s/@\"']*)?(?=@)")
NAMED_SECRET = re.compile(
    r"((?<![\w.-])[\w.-]*?(?:token|secret|passwo?r?d|passwd|pwd|passphrase|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|account[_-]?key|signing[_-]?key|credentials?|cookie|authorization|username)"
    r"(?:[\"']?\s*[:=]\s*|(?<=[a-z])\s(?=\S))(?:[\"'](?=[^\"'\n]*[\"']))?)"
    r"((?:bearer|basic)\s+[^\s\"',;&}]+|[^\s\"',;&}\]]+)",
    re.IGNORECASE,
)
UUID = re.compile(
    r"\b((?:GPU|MIG)-(?:GPU-)?)[0-9a-f]{8}(?:-[0-9a-f]{1,12}){0,4}(?![\w-])"
    r"|(?<![0-9A-Za-z])[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?![0-9A-Za-z])",
    re.IGNORECASE,
)
MAC = re.compile(
    r"(?<![\w:])[0-9a-f]{2}(?::[0-9a-f]{2}){5}(?:(?::[0-9a-f]{2}){2}|(?::[0-9a-f]{2}){14})?(?![\w:])", re.I
)
GUID = re.compile(r"(?<![\w:])[0-9a-f]{4}(?::[0-9a-f]{4}){3}(?![\w:])", re.I)
IPV6 = re.compile(r"(?<![\w:.])(?=[0-9a-f:]*:[0-9a-f:]*:)[0-9a-f:]{3,39}(?![\w:])", re.IGNORECASE)
IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")
VERSION_BEFORE = re.compile(
    r"(?:[=~<>!]=|version\W{0,12}|\bv|\.so\."
    r"|\b(?:nvidia|lib|cu|nccl|rccl|rocm|hip|torch|driver|firmware|fw|vbios|ofed|doca)[\w.-]*\W{1,24})$",
    re.IGNORECASE,
)
MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}(?![\w-])")
BUILDER = re.compile(r"\([\w.+-]*@[\w.-]*\)(?=\s|$)")
"""Who built a kernel or a driver, as version texts say: `(buildd@host)`."""
SERIAL = re.compile(
    r"((?:serial(?:[ _-]?(?:number|num|no))?|pdi|guid)[\"']?\s*[:=>]\s*[\"']?)((?=[\w./-]{0,40}\d)[A-Za-z0-9][\w./-]{3,})",
    re.IGNORECASE,
)
DISK_ID = re.compile(r"\b(?:eui|naa|t10|wwn|nvme)[.-](?:0x)?(?=[\w.-]{0,40}\d)[0-9A-Za-z][\w.-]{9,}")
HOME = re.compile(
    r"((?:/|\\)(?:home|homes|Users)(?:/|\\)|/tmp/torchinductor_|(?<![\w.~])~(?=[a-z]))([^\s/\\\"':;,<>()]+)"
)
HEX = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{32,}(?![0-9A-Za-z])")
WORD = re.compile(r"(?<![\w+/=-])[\w+/-]{24,}={0,2}(?![\w+/-])")
TRACE_FILE = re.compile(r"(?<![\w.-])([A-Za-z][\w.-]{0,80}?)_\d{1,10}\.\d{10,20}\.pt\.trace\.json")

_ENV_NAME = r"[A-Z][A-Z0-9_]+"
ENV_LINE = re.compile(rf"^((?:export |declare -x )?)({_ENV_NAME})=(.*?)(?=\s{_ENV_NAME}=|\r?$|\0)", re.M)
ENV_WORD = re.compile(rf"(?<![\w./?&-])({_ENV_NAME})=(\"[^\"]*\"|'[^']*'|[^\s\0\"'`]+)")
ENV_JSON = re.compile(
    rf"((?:\\?\")({_ENV_NAME})(?:\\?\")\s*:\s*\\?\")((?:[^\"\\]|\\[^\"])*)(?=\\?\"|$)"
    rf"|(')({_ENV_NAME})('\s*:\s*')((?:[^'\\]|\\.)*)(?='|$)"
)
ANY_LINE = re.compile(r"^([A-Za-z_][\w.%()-]*)=(.*?)(?=\r?$|\0)", re.M)
DUMP_LINES = 4
"""From so many NAME=value lines on, a text is taken for a dump of an environment, whatever case its names have."""

_PUBLIC_NAMES_TEXT = """
    NAME ID ID_LIKE VERSION VERSION_ID VERSION_CODENAME PRETTY_NAME UBUNTU_CODENAME VARIANT VARIANT_ID PLATFORM_ID
    CPE_NAME BUILD_ID DRIVER PCI_CLASS PCI_ID PCI_SUBSYS_ID PCI_SLOT_NAME MODALIAS MAJOR MINOR DEVNAME DEVTYPE
    INTERFACE IFINDEX DISKSEQ PARTN BOOT_IMAGE UUID PARTUUID LABEL PARTLABEL
"""
PUBLIC_NAMES = frozenset(_PUBLIC_NAMES_TEXT.split())
"""Names that os-release, uevent files and the kernel command line give to public facts: not environment."""
