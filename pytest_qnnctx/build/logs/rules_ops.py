"""Rules for what the compiler refuses: ops, dynamic shapes, and what the HTP cannot hold."""

from __future__ import annotations

from pytest_qnnctx.build.logs.rule import Rule

_GUIDE = "a practitioner's guide to these tools, measured with QAIRT 2.37"
_UNNAMED = "an op that the log does not name"
_CHANGE = "replace the op, or change its data types or shapes"
_CHANGE_V68 = f"{_CHANGE}; on v68 give it encodings"
_NAMES_FIRST = "the compiler's lines in a public report"

OP_RULES: tuple[Rule, ...] = (
    Rule(
        kind="block_quantization",
        family="product",
        words=("bq is",),
        pattern=r"(?:op : (?P<subject>[^;]+?)\s*;.*)?\bBQ is not supported",
        subject=_UNNAMED,
        message="'{subject}' is quantized by blocks, which {target} does not take",
        next_step="export encodings per tensor or per channel",
        source="public reports of a compiler that ended with exit 14",
        example="Error occurred due to op : conv_7; op_type : Conv2d; reason : BQ is not supported",
    ),
    Rule(
        kind="unsupported_op",
        family="product",
        words=("due to op",),
        pattern=r"error occurred due to op : (?P<subject>[^;]+?)\s*;\s*op_type : (?P<detail>.*)",
        message="op '{subject}' is refused for {target}: {detail}",
        next_step=_CHANGE,
        source="public reports of a compiler that ended with exit 14",
        example="Error occurred due to op : mm_1; op_type : MatMul; reason : rank 6",
    ),
    Rule(
        kind="arch_too_old",
        family="product",
        words=("incorrect value",),
        pattern=r"has incorrect value (?P<detail>\d+,? expected >=? ?\d+)",
        role="warning",
        subject="HTP architecture",
        message="an op needs a newer HTP than {arch} (the value is {detail})",
        next_step="on v68 avoid a 16-bit second input of MatMul, block quantization and FP16",
        source="a project's table of limits by SoC, with the validator's line for v68",
        example="[4294967295] has incorrect Value 68, expected >= 73.",
    ),
    Rule(
        kind="unsupported_op",
        family="product",
        words=("op validator",),
        pattern=r"validateNativeOps (?P<subject>\S+?):(?P<detail>qti\.\w+:\w+) htp op validator "
        r"failed",
        message="op '{subject}' ({detail}) is refused for {target} with these types and shapes",
        next_step=_CHANGE_V68,
        source=_NAMES_FIRST,
        example="QnnDsp <E> validateNativeOps node_9:qti.aisw:Tanh htp op validator failed 3110",
    ),
    Rule(
        kind="unsupported_op",
        family="product",
        words=("validate op",),
        pattern=r"failed to validate op (?P<subject>\S+) with error (?P<detail>0x\w+)",
        message="op '{subject}' is refused for {target} with these types and shapes ({detail})",
        next_step=_CHANGE_V68,
        source=_NAMES_FIRST,
        example="QnnDsp <E> Failed to validate op node_9 with error 0xc26",
    ),
    Rule(
        kind="unsupported_op",
        family="product",
        words=("validateopconfig",),
        pattern=r"backendValidateOpConfig\(?\)? failed for node [`'\"]?(?P<subject>[^`'\"\s]+)"
        r"[`'\"]?"
        r"(?: of type [`'\"]?(?P<detail>\w+))?",
        message="op '{subject}' ({detail}) is refused for {target} with these types and shapes",
        next_step=_CHANGE_V68,
        source="measured: what the compiler prints under ONNX Runtime",
        example="QNN.backendValidateOpConfig() failed for node `conv1` of type `Conv2d` with error "
        "code 3110",
    ),
    Rule(
        kind="unsupported_op",
        family="product",
        words=("validateopconfig",),
        pattern=r"validateOpConfig\b.*\bfailed\b.*\b(?:3110|0xc26)\b",
        role="symptom",
        subject=_UNNAMED,
        message="an op is refused for {target} with these types and shapes: {line}",
        next_step="look for the op above that line in the log; on v68 it is often a float one",
        source=_NAMES_FIRST,
        example="QnnDsp <E> QnnBackend_validateOpConfig failed 3110",
    ),
    Rule(
        kind="unsupported_op",
        family="product",
        words=("no translation",),
        pattern=r"no translation registered for op type (?P<detail>\w+)\.?(?:.*name:?\s*"
        r"(?P<subject>[\w./:-]*\w))?",
        message="the converter does not know the op '{subject}' ({detail})",
        next_step="replace the op by ones that it knows, or register an op package",
        source="the converters' form for an op that they cannot translate",
        example="ERROR - No translation registered for op type onnx_nonzero. Op's name: NonZero_7",
    ),
    Rule(
        kind="unsupported_op",
        family="product",
        words=("unsupported", "unknown"),
        pattern=r"(?:unsupported|unknown) (?:op(?:erator|eration)?|node|layer)(?: type)?s?:? "
        r"['\"`]?(?P<subject>[\w./:-]*\w)",
        message="an op is not supported for {target}: {line}",
        next_step=_CHANGE,
        source=f"{_GUIDE}: mentions of unsupported are to be listed with their ops",
        example="ERROR - Unsupported op NonZero_7",
    ),
    Rule(
        kind="unsupported_op",
        family="product",
        words=("unsupported", "not supported"),
        pattern=r"\bop(?:eration|erator)? ['\"`](?P<subject>[^'\"`]+)['\"`] is (?:not supported|"
        r"unsupported)",
        message="an op is not supported for {target}: {line}",
        next_step=_CHANGE,
        source=f"{_GUIDE}: mentions of unsupported are to be listed with their ops",
        example="ERROR - Op 'NonZero_7' is not supported",
    ),
    # Shapes
    Rule(
        kind="dynamic_input",
        family="product",
        words=("dynamic inputs",),
        pattern=r"missing command line inputs for dynamic inputs (?P<subject>\[[^\]]*\]|\S+)",
        message="input '{subject}' has a dynamic shape",
        next_step="give it a fixed shape in the qnn_model marker: input_shapes={{...}}",
        source="a vendor's troubleshooting page",
        example="ERROR - Missing command line inputs for dynamic inputs ['tokens']",
    ),
    Rule(
        kind="dynamic_shape",
        family="product",
        words=("dynamic value",),
        pattern=r"(?<![\w./:-])(?P<subject>[\w./:-]+): dynamic value for (?P<detail>\S+)",
        message="'{subject}' computes a shape from the value of {detail}, which is not constant",
        next_step="fix all input shapes and fold constants before exporting",
        source="a public report: a Range whose limit is computed",
        example="ERROR - /encoder/Range: Dynamic value for /encoder/Cast_1_output_0",
    ),
    # What the HTP can hold
    Rule(
        kind="vtcm_exceeded",
        family="product",
        words=("of tcm",),
        pattern=r"['\"\u201c](?P<subject>[^'\"\u201c\u201d]+)['\"\u201d] generated: requires "
        r"(?P<detail>0x[0-9a-f]+ bytes of TCM, which is greater than the TCM size of 0x[0-9a-f]+)",
        message="op '{subject}' does not fit the VTCM of {target}: {detail}",
        next_step="split the op or make its tensors smaller (tile it); one op must fit by itself",
        source="a public report of an InstanceNormalization that was too large",
        example='QnnDsp <E> "norm_3" generated: Requires 0x2400000 bytes of TCM, which is greater '
        "than the TCM size of 0x800000!",
    ),
    Rule(
        kind="vtcm_exceeded",
        family="product",
        words=("of tcm",),
        pattern=r"single op,? ['\"](?P<subject>[^'\"]+)['\"].*requires (?P<detail>0x[0-9a-f]+ "
        r"bytes of "
        r"TCM, which is greater than the TCM size of 0x[0-9a-f]+)",
        role="symptom",
        message="an op ({subject} after optimization) does not fit the VTCM of {target}: {detail}",
        next_step="split the op or make its tensors smaller (tile it); one op must fit by itself",
        source="a public report of an InstanceNormalization that was too large",
        example='dp.cc:149:ERROR:A single op, "q::Crouton" (Op ID: 11), requires 0x2400000 '
        "bytes of "
        "TCM, which is greater than the TCM size of 0x800000!",
    ),
    Rule(
        kind="graph_too_large",
        family="product",
        words=("estimated allocation",),
        pattern=r"graph requires estimated allocation of (?P<detail>\d+ KB, limit is \d+ KB)",
        subject="graph",
        message="the graph is too large for one process on the HTP: {detail}",
        next_step="split the model into several graphs, or use narrower weights",
        source="a public report: more than 2 GB are not serialised",
        example="fa_alloc.cc:2425::ERROR:graph requires estimated allocation of 2741569 KB, "
        "limit is "
        "2097152 KB",
    ),
    Rule(
        kind="graph_too_large",
        family="product",
        words=("memory usage too large", "relocation"),
        pattern=r"error during serialize: memory usage too large|relocation truncated to fit",
        role="symptom",
        subject="graph",
        message="the graph is too large: {line}",
        next_step="split the model into several graphs, or use narrower weights",
        source="the same report; the linker's line for a model library above 4 GB",
        example="graph_prepare.cc:838::ERROR:error during serialize: memory usage too large",
    ),
    Rule(
        kind="prepare_failed",
        family="product",
        words=("create op", "preparation failed"),
        pattern=r"could not create op: (?P<subject>[\w:.]+)|\bop (?P<detail>0x\w+) preparation "
        r"failed",
        role="symptom",
        subject="an op of the compiler's own",
        message="the HTP compiler could not build one of its ops: {line}",
        next_step="try another version of the SDK; this is a regression in some",
        source="a public report for 2.22",
        example="graph_prepare.cc:203:ERROR:could not create op: q::flat_to_vtcm",
    ),
    Rule(
        kind="finalize_failed",
        family="product",
        words=("finaliz", "prepare failed"),
        pattern=r"failed to finalize graph.*\berr(?:or)? (?P<detail>\d+)|finalize graph for idx.*"
        r"error = \d+|graph prepare failed -?\d+|graph finalize failure|while finalizing graphs",
        role="symptom",
        subject="graph",
        message="the graph could not be finalized: {line}",
        next_step="read the compiler's lines above it; 1002 is a lack of memory (one op above the "
        "VTCM, or a graph above 2 GB)",
        source="public reports: this is the last of several lines, and never the cause",
        example="     0.0ms [ ERROR ] QnnDsp <E> Failed to finalize graph (id: 1) with err 1002",
    ),
    Rule(
        kind="abort",
        family="product",
        exits=(134,),
        only_without_float=True,
        role="symptom",
        subject=_UNNAMED,
        message="{stage} aborted (exit 134): an op that the HTP cannot run; on {arch} this is "
        "almost "
        "always one that computes in floating point",
        next_step="list the tensors without an encoding; each of them stays float",
        source=f"{_GUIDE} on v68",
    ),
    Rule(
        kind="abort",
        family="product",
        exits=(134,),
        role="symptom",
        subject=_UNNAMED,
        message="{stage} aborted (exit 134): an op that the HTP cannot run",
        next_step="bisect the model by sub-graphs to find the op",
        source=_GUIDE,
    ),
    Rule(
        kind="crash",
        family="product",
        exits=(132, 135, 136, 139),
        role="symptom",
        subject="the tool",
        message="{stage} crashed: {exit}",
        next_step="try another version of the SDK; a block-quantized head is a known cause",
        source="a public report of a generator that ends with 139 and no line of error",
    ),
    Rule(
        kind="op_refused",
        family="product",
        exits=(14,),
        stages=("qnn-",),
        role="symptom",
        subject=_UNNAMED,
        message="{stage} could not compose the graph: an op failed its validation (exit 14)",
        next_step="read the lines with <E> in the build's log",
        source="public reports of a compiler that ended with exit 14",
    ),
)
