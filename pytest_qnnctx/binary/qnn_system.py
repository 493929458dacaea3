"""How libQnnSystem lays out in memory what it read from a context binary.

The structures follow the vendor's public API (``QnnSystemContext.h``, ``QnnTypes.h``,
``HTP/QnnHtpSystemContext.h``) on a 64-bit machine. Checked against libQnnSystem of QNN 2.47 and
2.51, which give binary info V3 and graph info V3; files of QNN 2.22 give V1.
"""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    Structure,
    Union,
    c_float,
    c_int32,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, ClassVar

HTP_BACKEND = 6

#: ``QuantizeParams.definition`` where an encoding is given.
DEFINED = 1
#: All it can be: made by the backend, given, none.
DEFINITIONS = (0, DEFINED, 0x7FFFFFFF)
#: ``QuantizeParams.encoding``: one scale and offset for the tensor, without and with a bit width.
SCALE_OFFSET = 0
BW_SCALE_OFFSET = 2


class Version(Structure):
    """A version triple."""

    _fields_ = (("major", c_uint32), ("minor", c_uint32), ("patch", c_uint32))


class ScaleOffset(Structure):
    """Per-tensor quantization: real = (q + offset) * scale."""

    _fields_ = (("scale", c_float), ("offset", c_int32))


class BwScaleOffset(Structure):
    """The same with the number of bits used."""

    _fields_ = (("bitwidth", c_uint32), ("scale", c_float), ("offset", c_int32))


class Encoding(Union):
    """One of the forms of quantization; the per-axis and block forms are not read."""

    _fields_ = (
        ("scale_offset", ScaleOffset),
        ("bw_scale_offset", BwScaleOffset),
        ("_widest", c_uint64 * 4),
    )


class QuantizeParams(Structure):
    """``definition`` says whether there is an encoding, ``encoding`` which form it has."""

    _fields_ = (("definition", c_uint32), ("encoding", c_uint32), ("form", Encoding))


class TensorBody(Structure):
    """The part of a tensor that V1 and V2 have in common and that is read here."""

    _fields_ = (
        ("id", c_uint32),
        ("name", c_void_p),
        ("type", c_uint32),
        ("data_format", c_uint32),
        ("data_type", c_uint32),
        ("quantize", QuantizeParams),
        ("rank", c_uint32),
        ("dimensions", c_void_p),
    )


class TensorV1(Structure):
    """A tensor of a library that knows no V2 (an array of them steps by 120 bytes)."""

    _fields_ = (("version", c_uint32), ("body", TensorBody), ("_client_buffer", c_uint8 * 24))


class Tensor(Structure):
    """A tensor of a library that knows V2 (144 bytes, whichever version an element has)."""

    _fields_ = (("version", c_uint32), ("body", TensorBody), ("_rest", c_uint8 * 48))


class GraphInfoV1(Structure):
    """A graph: its name, inputs and outputs."""

    _fields_: ClassVar[Any] = (
        ("version", c_uint32),
        ("name", c_void_p),
        ("num_inputs", c_uint32),
        ("inputs", c_void_p),
        ("num_outputs", c_uint32),
        ("outputs", c_void_p),
    )


class GraphInfoV2(GraphInfoV1):
    """V1, and the tensors that may be changed after the build."""

    _fields_: ClassVar[Any] = (("num_updateable", c_uint32), ("updateable", c_void_p))


class GraphInfoV3(GraphInfoV2):
    """V2, and what the backend says of the graph."""

    _fields_ = (
        ("blob_size", c_uint32),
        ("blob", c_void_p),
        ("start_op", c_uint32),
        ("end_op", c_uint32),
    )


class GraphBlob(Structure):
    """The HTP's blob of a graph, version 1; a version-2 block may follow it, 40 bytes in.

    ``vtcm`` is in bytes in files of QNN 2.47 and 2.51, and in MiB by the header's comment.
    """

    _fields_ = (
        ("version", c_uint32),
        ("spill_fill", c_uint64),
        ("vtcm", c_uint32),
        ("optimization_level", c_uint32),
        ("dlbc", c_uint8),
        ("hvx_threads", c_uint64),
    )


class HwInfoBlob(Structure):
    """What a context of binary info V1 and V2 says of one of its graphs.

    The index is 32 bits wide; the four bytes after it are padding.
    """

    _fields_ = (("version", c_uint32), ("graph_index", c_uint64), ("spill_fill", c_uint64))


class ContextBlob(Structure):
    """The HTP's metadata of a context (binary info V3)."""

    _fields_ = (("version", c_uint32), ("dsp_arch", c_uint32))


class BinaryInfoV1(Structure):
    """A context. V2 is the same with a pointer to a platform info at its end."""

    _fields_ = (
        ("backend_id", c_uint32),
        ("build_id", c_void_p),
        ("core_api", Version),
        ("backend_api", Version),
        ("soc_version", c_void_p),
        ("hw_info_version", Version),
        ("blob_version", Version),
        ("hw_info_size", c_uint32),
        ("hw_info", c_void_p),
        ("blob_size", c_uint64),
        ("num_tensors", c_uint32),
        ("tensors", c_void_p),
        ("num_graphs", c_uint32),
        ("graphs", c_void_p),
    )


class BinaryInfoV3(Structure):
    """A context, without the hardware blob and with the backend's metadata and the SoC's number."""

    _fields_ = (
        ("backend_id", c_uint32),
        ("build_id", c_void_p),
        ("core_api", Version),
        ("backend_api", Version),
        ("soc_version", c_void_p),
        ("blob_version", Version),
        ("blob_size", c_uint64),
        ("num_tensors", c_uint32),
        ("tensors", c_void_p),
        ("num_graphs", c_uint32),
        ("graphs", c_void_p),
        ("platform", c_void_p),
        ("metadata_size", c_uint32),
        ("metadata", c_void_p),
        ("soc_model", c_uint32),
    )


class AnyBinaryInfo(Union):
    """What follows the version number."""

    _fields_ = (("v1", BinaryInfoV1), ("v3", BinaryInfoV3))


class BinaryInfo(Structure):
    """What ``systemContextGetBinaryInfo`` points to; ``version`` says which member counts."""

    _fields_ = (("version", c_uint32), ("u", AnyBinaryInfo))


CreateFunction = CFUNCTYPE(c_uint64, c_void_p)
GetBinaryInfoFunction = CFUNCTYPE(c_uint64, c_void_p, c_void_p, c_uint64, c_void_p, c_void_p)


class SystemInterface(Structure):
    """What ``QnnSystemInterface_getProviders`` points to, as far as it is called here."""

    _fields_ = (
        ("backend_id", c_uint32),
        ("provider", c_void_p),
        ("api_version", Version),
        ("create", c_void_p),
        ("get_binary_info", c_void_p),
    )
