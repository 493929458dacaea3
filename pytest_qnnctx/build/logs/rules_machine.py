"""Rules for what says nothing about the model: the SDK, its environment, the disk, the device."""

from __future__ import annotations

from pytest_qnnctx.build.logs.rule import Rule

_ENVSETUP = (
    "source bin/envsetup.sh of the SDK with bash, after any eSDK environment file and with "
    "LD_LIBRARY_PATH unset"
)
_GUIDE = "a practitioner's guide to these tools, measured with QAIRT 2.37"
_MODE = (
    "correct the owner or mode of that file or directory; a tool of the SDK needs its "
    "executable bit"
)
_GENERAL = "what the operating system says; not special to these tools"
_DEVICE = "check ADSP_LIBRARY_PATH (separated by ';'), the skel of this architecture, and the cDSP"
_SHELL = r"^(?:\S*(?:sh|env)|\S+\.sh)(?::(?: line)? \d+)?: "
_NO_FILE = r"(?:no such file|not found|cannot open|could not (?:open|load|find)|unable to)"

MACHINE_RULES: tuple[Rule, ...] = (
    Rule(
        kind="licence",
        family="infrastructure",
        words=("license", "licence"),
        pattern=r"\blicen[cs]e\b.*\b(?:fail\w*|expired?|invalid|denied|not (?:found|valid|"
        r"accepted)|"
        r"missing|check-?out|unavailable|error)\b|\b(?:fail\w*|invalid|expired|missing|no valid)\b"
        r".*\blicen[cs]e\b",
        subject="licence",
        message="{stage} was refused for the lack of a licence: {detail}",
        next_step="renew or accept the licence of the SDK on the build host",
        source="general form of such messages; the public logs seen hold none verbatim",
        example="[ ERROR ] License check failed: the license file has expired",
    ),
    Rule(
        kind="disk_full",
        family="infrastructure",
        words=("no space", "quota", "enospc"),
        pattern=r"no space left on device|disk quota exceeded|ENOSPC",
        subject="disk",
        message="the disk was full while {stage} ran: {detail}",
        next_step="free some space, or choose another directory with --qnnctx-cache-dir; the "
        "converters also write to QAIRT_TMP_DIR",
        source=_GENERAL,
        example="OSError: [Errno 28] No space left on device: '/tmp/ext_data_x1'",
    ),
    Rule(
        kind="disk_or_permission",
        family="infrastructure",
        words=("external data",),
        pattern=r"failed to copy external data to (?:the )?disk(?: at:?\s*(?P<subject>\S+?)"
        r"\.?(?=\s|$))?",
        subject="the temporary directory",
        message="{stage} could not copy the model's external data to {subject}",
        next_step="free some space there, or set QAIRT_TMP_DIR to a larger directory that can be "
        "written to",
        source="a vendor's troubleshooting page for qairt-converter, with the variable's name",
        example="2026-01-02 03:04:05,678 - 240 - ERROR - Encountered Error: Failed to copy "
        "external "
        "data to the disk at: /tmp/tmpabc. It may be due to permission or space issue.",
    ),
    Rule(
        kind="device_permission",
        family="infrastructure",
        words=("0x80000416", "permission denied"),
        pattern=r"0x80000416|(?P<subject>/dev/(?:fastrpc|adsprpc)\S*?)['\"]?:?\s*permission denied",
        subject="the FastRPC device node",
        message="{subject} cannot be opened by this user: {detail}",
        next_step="give the user access to /dev/fastrpc-cdsp (or /dev/fastrpc-cdsp-secure)",
        source="a public report of open_dev failing with 0x80000416 for lack of permission",
        example="     0.0ms [ ERROR ] QnnDsp <E> open_dev failed, error 0x80000416",
    ),
    Rule(
        kind="permission",
        family="infrastructure",
        words=("permission denied",),
        pattern=r"permission denied:?\s+['\"](?P<subject>[^'\"]+)['\"]",
        message="{stage} was not permitted to use '{subject}'",
        next_step=_MODE,
        source=_GENERAL,
        example="PermissionError: [Errno 13] Permission denied: '/opt/out/model.dlc'",
    ),
    Rule(
        kind="permission",
        family="infrastructure",
        words=("permission denied", "not permitted"),
        pattern=r"(?:(?<![\w./+-])(?P<subject>[\w./+-]+): )?permission denied|"
        r"operation not permitted",
        subject="a file",
        message="{stage} was not permitted to use {subject}: {line}",
        next_step=_MODE,
        source=_GENERAL,
        example="bash: line 1: ./qairt-converter: Permission denied",
    ),
    Rule(
        kind="shim_missing",
        family="infrastructure",
        words=("libqnnmodeldlc",),
        pattern=r"libQnnModelDlc\.so\b.*" + _NO_FILE + "|" + _NO_FILE + r".*libQnnModelDlc\.so",
        subject="libQnnModelDlc.so",
        message="{stage} did not find libQnnModelDlc.so, the SDK's loader of DLC files",
        next_step=f"{_ENVSETUP}; if the SDK has no such library, use one that does",
        source=_GUIDE,
        example="dlopen: libQnnModelDlc.so: cannot open shared object file: No such file or "
        "directory",
    ),
    Rule(
        kind="skel_missing",
        family="infrastructure",
        words=("skel.so",),
        pattern=r"(?P<subject>libQnnHtpV\d+Skel\.so)\b.*" + _NO_FILE,
        message="the HTP's library {subject} was not found",
        next_step=_DEVICE,
        source="public reports: the skel is searched for along ADSP_LIBRARY_PATH only",
        example="apps_std_fopen: libQnnHtpV68Skel.so not found on any path",
    ),
    Rule(
        kind="library_missing",
        family="infrastructure",
        words=("shared object",),
        pattern=r"(?P<subject>lib[\w+.-]+\.so[\w.]*)\b['\"]?\s*:?\s*cannot open shared object file",
        message="{stage} needs the library {subject}, which was not found",
        next_step=f"{_ENVSETUP}; libc++.so.1 and libpython3.x come from the distribution's "
        f"packages",
        source="a public report (libc++.so.1 on the host), and the dynamic loader's own form",
        example="Cannot Open QNN library libQnnHtp.so, with error: libc++.so.1: cannot open shared "
        "object file: No such file or directory",
    ),
    Rule(
        kind="backend_missing",
        family="infrastructure",
        words=("libqnn", "load backend", "qnn library"),
        pattern=r"(?:(?P<subject>libQnn\w+\.so)\b.*" + _NO_FILE + r")|"
        r"(?:unable to load backend|(?:cannot open|could not open) QNN library)",
        subject="the backend library",
        message="{stage} could not load {subject}: {line}",
        next_step=f"{_ENVSETUP}; look whether the library is there and for this machine",
        source="form of the tools' own messages in public reports",
        example="[ ERROR ] Unable to load backend. dlerror(): wrong ELF class: ELFCLASS64",
    ),
    Rule(
        kind="sourced_with_sh",
        family="infrastructure",
        words=("not found", "substitution", "unexpected"),
        pattern=r"\b(?P<detail>source|\[\[): not found|bad substitution|"
        r"syntax error: ['\"]\(['\"] unexpected",
        subject="envsetup.sh",
        message="a script of the SDK was run by sh, which is not bash: {line}",
        next_step="source bin/envsetup.sh with bash",
        source=_GUIDE,
        example="/opt/qairt/bin/envsetup.sh: 12: Bad substitution",
    ),
    Rule(
        kind="tool_missing",
        family="infrastructure",
        words=("not found", "no such file"),
        pattern=rf"{_SHELL}['\"\u2018]?(?P<subject>[\w./+-]+)['\"\u2019]?: (?:(?:command )?not "
        rf"found|"
        r"no such file or directory)",
        subject="a tool",
        message="{stage}: the command {subject} was not found",
        next_step="source bin/envsetup.sh with bash, not with sh, and after the eSDK's environment "
        "file, which replaces PATH",
        source=_GUIDE,
        example="bash: line 1: qairt-quantizer: command not found",
    ),
    Rule(
        kind="tool_missing",
        family="infrastructure",
        exits=(127,),
        role="symptom",
        subject="a tool",
        message="{stage} was not found (exit 127)",
        next_step="source bin/envsetup.sh with bash, not with sh, and after the eSDK's environment "
        "file, which replaces PATH",
        source="the shell's exit code for a command that is not found",
    ),
    Rule(
        kind="tool_not_executable",
        family="infrastructure",
        words=("exec format", "cannot execute"),
        pattern=r"exec format error|cannot execute(?: binary file)?",
        subject="a tool",
        message="{stage} cannot be executed on this machine: {line}",
        next_step="the converters run on x86-64 Linux only (WSL2 counts): set QC_BUILD_HOST to one",
        source=_GUIDE,
        example="bash: line 1: ./qairt-converter: cannot execute binary file: Exec format error",
    ),
    Rule(
        kind="python_path",
        family="infrastructure",
        words=("no module",),
        pattern=r"no module named ['\"](?P<subject>qti|qairt)(?:[.'\"])",
        message="{stage} did not find the SDK's Python package '{subject}'",
        next_step=f"{_ENVSETUP}; it puts lib/python of the SDK on PYTHONPATH",
        source="documentation of a project that drives these tools",
        example="ModuleNotFoundError: No module named 'qti.aisw'",
    ),
    Rule(
        kind="python_package",
        family="infrastructure",
        words=("no module",),
        pattern=r"no module named ['\"](?P<subject>[^'\"]+)['\"]",
        message="{stage} needs the Python package '{subject}', which is not installed",
        next_step="install it for the Python that runs the converters (the SDK's "
        "bin/check-python-dependency lists them)",
        source="Python's own message",
        example="ModuleNotFoundError: No module named 'onnx'",
    ),
    Rule(
        kind="python_version",
        family="infrastructure",
        words=("python", "numpy", "_array_api"),
        pattern=r"python version mismatch|compiled (?:for|using|against) (?P<detail>Python \S+|"
        r"NumPy "
        r"\S+)|(?:requires|supports only|needs) (?:only )?python\s?[<>=]*\s?\d[\w.]*"
        r"|_ARRAY_API not found",
        subject="Python",
        message="{stage} cannot work with this Python or NumPy: {line}",
        next_step="run the converters with the Python (3.10 for most versions) and packages that "
        "this version of the SDK asks for",
        source="messages of Python's and NumPy's own import checks",
        example="ImportError: Python version mismatch: module was compiled for Python 3.10",
    ),
    Rule(
        kind="skel_version",
        family="infrastructure",
        words=("id mismatch",),
        pattern=r"(?P<subject>(?:skel|stub) lib) id mismatch: (?P<detail>expected \(\S+\), "
        r"detected \(\S+\))",
        message="the {subject} is not of the runtime's version: {detail}",
        next_step="put libraries and skels of one SDK version on the board",
        source="public reports with both builds in the line, err 1008",
        example="QnnDsp <E> Skel lib id mismatch: expected (v2.46.0.1), detected (v2.47.0.2)",
    ),
    Rule(
        kind="skel_version",
        family="infrastructure",
        words=("1008", "version mismatch", "valid interface"),
        pattern=r"(?:failed to load skel, error:?|unable to load remote symbols) (?P<detail>1008)\b"
        r"|backend version mismatch|unable to find a valid interface",
        subject="QNN libraries",
        role="symptom",
        message="libraries of different SDK versions meet: {line}",
        next_step="put libraries, tools and skels of one SDK version in one place",
        source="public reports; 1008 is the API's number for incompatible binaries",
        example="     0.0ms [ ERROR ] QnnDsp <E> Failed to load skel, error: 1008",
    ),
    Rule(
        kind="skel_missing",
        family="infrastructure",
        words=("0x80000406",),
        pattern=r"opensession.*(?P<detail>0x80000406)",
        subject="skel",
        message="the HTP's skel library was not found on the board ({detail})",
        next_step=_DEVICE,
        source="a public report of a QCM6490; 0x80000406 is FastRPC's number for a missing skel",
        example="QnnDsp <E> DspTransport.openSession qnn_open failed, 0x80000406, prio 100",
    ),
    Rule(
        kind="skel_unreachable",
        family="infrastructure",
        words=("opensession", "14001", "14003", "skel", "transport", "device creation"),
        pattern=r"opensession.*failed|(?:transport layer setup failed|platform (?:info|config)):? "
        r"?.*\b(?P<detail>1400[13])\b|failed to load skel|failed to create transport|"
        r"failed to retrieve skel build id|\bdevice creation failure\b",
        subject="HTP",
        role="symptom",
        message="the HTP could not be opened: {line}",
        next_step=_DEVICE,
        source="a public report's chain of lines from openSession to 14001",
        example="     0.0ms [ ERROR ] QnnDsp <E> Transport layer setup failed: 14001",
    ),
    Rule(
        kind="soc_unknown",
        family="infrastructure",
        words=("socmodel", "snapdragonmodel"),
        pattern=r"unknown config socmodel (?P<subject>\d+)|"
        r"unsupported snapdragonmodel\s*=\s*(?P<detail>\d+)",
        subject="soc_model",
        message="the SDK does not know the SoC that it was given for {soc}: {line}",
        next_step="use the SDK's own SoC number (93 for QCS6490, not the kernel's 498), and an SDK "
        "that knows it",
        source="a project's debugging notes: the number was the kernel's",
        example="[ ERROR ] Unknown config socModel 660",
    ),
    Rule(
        kind="device_memory",
        family="infrastructure",
        words=("fastrpc", "map weights", "available pd", "ssr detected"),
        pattern=r"fastrpc memory map .*failed|failed to map weights buffer|"
        r"failed to find available PD|SSR detected|mapping buffer .*to fastrpc failed",
        subject="cDSP",
        message="the board's cDSP had no memory or no process left: {line}",
        next_step="end what else holds contexts on the board, then restart it",
        source="a vendor's troubleshooting page and public reports (too many contexts resident)",
        example="[ ERROR ] QnnDsp <E> Failed to find available PD for contextId 4",
    ),
    Rule(
        kind="out_of_memory",
        family="infrastructure",
        words=("bad_alloc", "memory"),
        pattern=r"std::bad_alloc|^MemoryError\b|cannot allocate memory|out of memory: killed",
        subject="memory",
        message="the build host ran out of memory while {stage} ran: {line}",
        next_step="build on a host with more memory, or with fewer workers",
        source=_GENERAL,
        example="terminate called after throwing an instance of 'std::bad_alloc'",
    ),
    Rule(
        kind="killed",
        family="infrastructure",
        exits=(129, 130, 137, 140, 142, 143),
        subject="the process",
        message="{stage} was ended from outside: {exit}",
        next_step="look for a lack of memory (the kernel's log names the process), and for who "
        "ended it",
        source="128 plus the signal's number; SIGKILL is what the kernel uses when memory is short",
    ),
    Rule(
        kind="nothing_produced",
        family="infrastructure",
        exits=(0,),
        produced=False,
        role="symptom",
        subject="output",
        message="{stage} ended with exit 0 and produced nothing",
        next_step=_ENVSETUP + ", then go back to the working directory, which sourcing can change",
        source=_GUIDE,
    ),
)
