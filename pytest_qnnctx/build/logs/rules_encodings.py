"""Rules for encodings that were not applied, and for what then computes in floating point."""

from __future__ import annotations

from pytest_qnnctx.build.logs.rule import Rule

_CONVERTERS = ("converter", "quantizer")

# Wordings of the converters for encodings differ by version and none is published: words decide.
_ENCODING = r"(?:override|encoding)s?\b"
_LOST = (
    r"\b(?:skip(?:s|ped|ping)?|ignor(?:e|es|ed|ing)|not (?:be )?(?:found|used|applied|matched|"
    r"present)|unmatched|unused|(?:do|does|did) not (?:match|exist)|no (?:such|match\w*)|"
    r"(?:could not|cannot|can't|couldn't) find|dropped|missing)\b"
)
_HARMLESS = (
    r"\b(?:0|zero|none of the|no) (?:encodings?|overrides?|tensors?|entries)\b.{0,20}"
    r"(?:skip|ignor|unmatched|missing|dropped|unused)|(?:skipped|ignored|unmatched|missing|unused)"
    r"\s*[:=]\s*0\b|utf-?8|ascii|--\w*(?:quantization_overrides|ignore_\w+)"
)
_NO_WORD = (
    r"(?!(?:not|no|is|are|was|were|in|of|for|at|on|with|that|to|from|named?|file|the|"
    r"encodings?|overrides?|tensors?)\b|(?:ops?|nodes?|layers?)\s)"
)
_QUOTED = r"['\"`][^'\"`]+['\"`]"
_NAME = rf"(?P<subject>{_QUOTED}|{_NO_WORD}[\w./:-]+)"
_TENSOR = r"\b(?:tensor|param(?:eter)?|activation|weight|bias|input|output|node|op)s?\b:?\s+"
_DRIFTED = "export the ONNX and its encodings again, as one pair, and patch neither"
_QUANTIZE = "quantize it: give the model encodings=FILE that covers it, or calibration= inputs"
_FALLBACK = (
    r"(?:(?<![-_])\bfloat(?:ing[- ]point)?[ -]fall[ -]?back|"
    r"\bf[ae]ll(?:s|ing|en)?[ -]?back (?:in)?to (?:float|fp ?16|fp ?32)\w*|"
    r"\b(?:kept|stays?|remains?|left) (?:in |as )?(?:float|fp ?16|fp ?32)\w*)"
)
_FLAG = r"--\w*float_fallback"
_FALLS = rf"(?:{_TENSOR}|\bfall ?back(?::|\s+(?:for|of)(?: the)?)\s+){_NAME}"
# Something that looks like a name: it has a dot, a slash, a digit or an underscore.
_NODE = r"(?<![\w./:-])(?=[\w/-]*[./:_\d])(?P<subject>[\w./:-]+)['\"`]?\s"
_ON_CPU = (
    r"\b(?:f[ae]ll(?:s|ing|en)?[ -]?back|runs?|executed?|placed|assigned|offloaded) "
    r"(?:on |to |onto )(?:the )?CPU\b"
)
_GUIDE = "a practitioner's guide to these tools, measured with QAIRT 2.37"
_WORDS = f"{_GUIDE}: which words such lines hold; their exact form is not public"
_UNNAMED = "an op that the log does not name"


def _unmatched(*, pattern: str, example: str) -> Rule:
    """A row on a lost encoding; rows differ in where the line has the names."""
    return Rule(
        kind="encoding_unmatched",
        family="product",
        words=("encoding", "override"),
        pattern=pattern,
        also=(_ENCODING, _LOST),
        unless=_HARMLESS,
        role="warning",
        stages=_CONVERTERS,
        subject="encodings file",
        message="the encoding of '{subject}' was not applied: {line}",
        next_step=_DRIFTED,
        source=_WORDS,
        example=example,
    )


ENCODING_RULES: tuple[Rule, ...] = (
    Rule(
        kind="tensor_uncovered",
        family="product",
        words=("encoding", "override"),
        pattern=r"\b(?:no|without(?: an?)?|missing) (?:quantization )?(?:encoding|override)s?"
        r"(?: (?:was |were )?(?:found|given|provided|available|present|specified))?"
        rf" (?:for|of|on|at) (?:the )?(?:{_TENSOR})?{_NAME}",
        role="warning",
        stages=_CONVERTERS,
        message="tensor '{subject}' has no encoding and stays in floating point",
        next_step="export the encodings again with this tensor in them, or give calibration= "
        "inputs",
        source="vendor text on the quantizer: a tensor without an encoding stays float",
        example="2026-01-02 03:04:05,678 - 240 - WARNING - No encoding found for tensor relu_3.out",
    ),
    _unmatched(
        pattern=rf"(?P<subject>\[?\s*{_QUOTED}(?:\s*,\s*{_QUOTED})*)",
        example="WARNING - Encodings for ['conv9.weight', 'conv9.out'] not found, skipping",
    ),
    _unmatched(
        pattern=rf"{_TENSOR}{_NAME}",
        example="WARNING - Ignoring override for tensor conv9.weight",
    ),
    _unmatched(
        pattern=r":\s+(?P<subject>[\w./:-]+(?:\s*,\s*[\w./:-]+)*)\s*$",
        example="WARNING - 2 quantization overrides unmatched: conv9.weight, conv9.out",
    ),
    _unmatched(
        pattern=_LOST,
        example="WARNING - Some quantization overrides were skipped",
    ),
    Rule(
        kind="encoding_version",
        family="product",
        words=("encoding",),
        pattern=r"\bencodings?\b.*\b(?:unsupported|unknown|invalid|not supported)\b|"
        r"\b(?:unsupported|unknown|invalid)\b.*\bencodings?\b",
        stages=_CONVERTERS,
        subject="encodings file",
        message="{stage} does not take the encodings: {line}",
        next_step="export them in another version of the format (0.6.1, 1.0.0 or 2.0.0)",
        source="public reports: which versions a converter reads depends on the SDK",
        example="ERROR - Unsupported encodings version 2.0.0",
    ),
    Rule(
        kind="quantization_skipped",
        family="note",
        words=("skipping quantization",),
        pattern=r"skipping quantization\b.*\bno input_list",
        subject="calibration",
        message="{stage} had no calibration inputs: what has no encoding stays float",
        next_step="nothing, where the encodings cover every tensor",
        source="the converter's own line in a public log",
        example="2026-01-02 03:04:05,678 - 235 - INFO - Skipping quantization, no input_list "
        "provided",
    ),
    Rule(
        kind="calibration_needed",
        family="product",
        words=("float_fallback",),
        pattern=r"\b(?:mandatory|required|exclusive|one of|must|need\w*|provide|specify)\b",
        also=(r"--?input_list\b", r"float_fallback\b"),
        stages=_CONVERTERS,
        subject="calibration",
        message="this version of {stage} demands calibration inputs or an explicit float fallback",
        next_step="give the model calibration= inputs; opt in to a float fallback only on an HTP "
        "that computes in floating point",
        source="vendor text of later versions: one of the two flags is mandatory",
        example="ERROR - Either --input_list or --enable_float_fallback must be specified",
    ),
    # Floating point
    Rule(
        kind="float_op",
        family="product",
        words=("floating-point type",),
        pattern=r"tensor ['\"]?(?P<subject>[^'\"\s]+)['\"]? has a floating-point type which is not "
        r"supported",
        message="tensor '{subject}' is in floating point, which {soc} cannot compute",
        next_step=_QUANTIZE,
        source="a hosted compiler's message in public reports for QCS6490",
        example="Tensor 'input_features' has a floating-point type which is not supported by the "
        "targeted device.",
    ),
    Rule(
        kind="float_op",
        family="product",
        words=("fp16", "float16", "float_16", "half precision"),
        pattern=r"\b(?:not supported|unsupported|not available)\b",
        also=(r"\b(?:fp16|float16|float_16|half precision)\b",),
        only_without_float=True,
        subject=_UNNAMED,
        message="FP16 is refused for HTP {arch}: {line}",
        next_step=_QUANTIZE,
        source="public reports: HTP v68 has no FP16",
        example="[ ERROR ] QnnDsp <E> FP16 is not supported on this target",
    ),
    Rule(
        kind="float_op",
        family="product",
        words=("float", "fp"),
        pattern=_FALLS,
        also=(_FALLBACK,),
        unless=_FLAG,
        only_without_float=True,
        stages=_CONVERTERS,
        message="'{subject}' falls back to floating point, which HTP {arch} of {soc} cannot "
        "compute",
        next_step=_QUANTIZE,
        source=_WORDS,
        example="WARNING - Op node_Softmax_12 falls back to float",
    ),
    Rule(
        kind="float_op",
        family="product",
        words=("float", "fp"),
        pattern=_FALLBACK,
        unless=_FLAG,
        only_without_float=True,
        stages=_CONVERTERS,
        subject=_UNNAMED,
        message="something falls back to floating point, which HTP {arch} cannot compute: {line}",
        next_step=_QUANTIZE,
        source=_WORDS,
        example="WARNING - Float fallback was applied",
    ),
    Rule(
        kind="float_fallback",
        family="note",
        words=("float", "fp"),
        pattern=_FALLS,
        also=(_FALLBACK,),
        unless=_FLAG,
        stages=_CONVERTERS,
        message="'{subject}' falls back to floating point",
        next_step="quantize it where the time matters",
        source=_WORDS,
        example="WARNING - Op node_Softmax_12 falls back to float",
    ),
    Rule(
        kind="float_fallback",
        family="note",
        words=("float", "fp"),
        pattern=_FALLBACK,
        unless=_FLAG,
        stages=_CONVERTERS,
        subject=_UNNAMED,
        message="something falls back to floating point: {line}",
        next_step="quantize it where the time matters",
        source=_WORDS,
        example="WARNING - Float fallback was applied",
    ),
    Rule(
        kind="cpu_fallback",
        family="note",
        words=("cpu",),
        pattern=rf"(?:{_NODE}.{{0,40}}?)?{_ON_CPU}",
        subject=_UNNAMED,
        message="'{subject}' does not run on the HTP but on the CPU",
        next_step="replace the op by one that the HTP has; each is a round trip",
        source=_WORDS,
        example="WARNING - NonZero_7 falls back to CPU",
    ),
)
