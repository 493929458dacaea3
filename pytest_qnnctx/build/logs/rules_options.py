"""Rules for options that the SDK did not take, and for a binary that a device did not take."""

from __future__ import annotations

from pytest_qnnctx.build.logs.rule import Rule

_GUIDE = "a practitioner's guide to these tools, measured with QAIRT 2.37"

OPTION_RULES: tuple[Rule, ...] = (
    Rule(
        kind="graph_options_unbound",
        family="product",
        words=("graphname",),
        pattern=r"unable to find graphName:\s*(?P<subject>\S+)",
        message="the configuration's graph_names and the model do not agree on graph '{subject}'",
        next_step="name the graph in graph_names as the model does; a mismatch drops O, VTCM "
        "and HVX "
        "threads, in the DLC route without a word",
        source="a vendor's reference page for the model-library route",
        example="[ ERROR ] getQnnGraphConfigFromInfo() unable to find graphName:net in provided "
        "graphsConfigInfo object.",
    ),
    Rule(
        kind="config_key_ignored",
        family="product",
        words=("key",),
        pattern=r"\b(?:invalid|unknown|unrecogni[sz]ed|unsupported) (?:config(?:uration)? )?key"
        r"(?:\s*[:=]\s*|\s+)['\"]?(?P<subject>[\w./-]+)",
        role="warning",
        message="the SDK ignored the configuration key '{subject}'",
        next_step="use the key's spelling of this version of the SDK",
        source="a public report: the line is printed and the run goes on",
        example="    32.1ms [ ERROR ] Invalid key: graph_configs/0/graph_priority",
    ),
    Rule(
        kind="hvx_threads_default",
        family="note",
        words=("hvx_threads",),
        pattern=r"sanitizing the value for hvx_threads",
        subject="hvx_threads",
        message="the compiler took its own number of HVX threads instead of the one it was given",
        next_step="ask for a number that the part has, or for none",
        source="measured: printed with exit 0",
        example=" <W> Sanitizing the value for hvx_threads and setting to default",
    ),
    Rule(
        kind="flag_unknown",
        family="product",
        words=("argument", "option", "flag"),
        pattern=r"(?:unrecogni[sz]ed|unknown|invalid) (?:argument|option|flag)s?:?\s+['\"]?"
        r"(?P<subject>-[\w-]+)",
        message="{stage} does not know the flag {subject}",
        next_step="look for its name in this version: {stage} --help",
        source="the argument parser's own form; flags are renamed between versions",
        example="qairt-quantizer: error: unrecognized arguments: --weight_bw 8",
    ),
    Rule(
        kind="binary_name_doubled",
        family="product",
        pattern=r"--binary_file[= ]+(?P<subject>\S+\.bin)(?=\s|$)",
        produced=False,
        on="command",
        message="--binary_file {subject} makes {subject}.bin: the generator appends .bin itself",
        next_step="give --binary_file a base name without .bin",
        source=_GUIDE,
        example="qnn-context-binary-generator --binary_file net.bin --output_dir out",
    ),
    Rule(
        kind="binary_name_doubled",
        family="product",
        words=(".bin.bin",),
        pattern=r"(?<![\w./-])(?P<subject>[\w./-]+)\.bin\.bin\b",
        message="'{subject}.bin.bin' was written: the generator appends .bin itself",
        next_step="give --binary_file a base name without .bin",
        source=_GUIDE,
        example="Context binary written to out/net.bin.bin",
    ),
    # A binary that is not taken
    Rule(
        kind="arch_mismatch",
        family="product",
        words=("feature arch",),
        pattern=r"request feature arch with value (?P<detail>\d+) unsupported",
        subject="HTP architecture",
        message="the binary is for HTP v{detail}, this device is another",
        next_step="build it for the architecture of the board, read there and not inferred",
        source="public reports; the load ends with 0x138d",
        example="QnnDsp <E> Request feature arch with value 75 unsupported",
    ),
    Rule(
        kind="vtcm_mismatch",
        family="product",
        words=("feature vtcm",),
        pattern=r"request feature vtcm size with value (?P<detail>\d+) unsupported",
        subject="VTCM",
        message="the binary asks for {detail} of VTCM, which this device does not have",
        next_step="build it with the part's vtcm_mb ({soc}), and read the value back",
        source="a vendor's reference page",
        example="QnnDsp <E> Request feature vtcm size with value 8 unsupported",
    ),
    Rule(
        kind="runtime_too_old",
        family="product",
        words=("future blob",),
        pattern=r"can'?t read future blob\.?\s*(?P<detail>.*)",
        subject="blob version",
        message="the binary is of a newer SDK than this runtime: {detail}",
        next_step="build with the runtime's SDK or an older one, or update the runtime",
        source="a vendor's troubleshooting page",
        example="Can't read future blob. Newest blob version supported: 3.2.1. Current blob "
        "version: "
        "3.3.0.",
    ),
    Rule(
        kind="not_a_context_binary",
        family="product",
        words=("30001", "30010"),
        pattern=r"\berr(?:or)?\b\D{0,20}\b(?P<detail>30001|30010)\b",
        subject="context binary",
        message="the file is no context binary, or a damaged one (error {detail})",
        next_step="look at its size and sha256; a model library or a DLC is none",
        source="public reports, and measured: 30001 for a truncated file, 30010 for damaged "
        "metadata",
        example="[ ERROR ] Failed to get binary info, error: 30010",
    ),
    Rule(
        kind="context_refused",
        family="product",
        words=("from binary",),
        pattern=r"(?:could not create context from binary|failed to create context from binary|"
        r"create from binary failure|context create from binary failed)(?:.*\berr "
        r"(?P<detail>\w+))?",
        role="symptom",
        subject="context binary",
        message="the device refused the context binary: {line}",
        next_step="compare architecture, SoC and QNN version of binary and board (qnnctx inspect): "
        "5000 is a runtime older than the binary or another target, 1002 a lack of memory",
        source="public reports and the API's numbers",
        example="Could not create context from binary for context index = 0 : err 5000",
    ),
    Rule(
        kind="context_refused",
        family="product",
        exits=(16,),
        stages=("qnn-",),
        role="symptom",
        subject="context binary",
        message="{stage} could not create the context from the binary (exit 16)",
        next_step="compare architecture, SoC and QNN version of binary and board (qnnctx inspect)",
        source="a public report's exit code with its line",
    ),
)
