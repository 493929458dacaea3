"""An ONNX model with the one node ``EPContext``, through which ONNX Runtime loads a binary.

Written by hand, since a board has no ``onnx`` package: protocol buffers, field numbers from
onnx.proto. Measured with onnxruntime-qnn 2.7.0: ``ep_cache_context`` must be relative and may not
contain ``..`` (a symlink beside the model is followed); in a binary with several graphs the node's
*name* selects one; with one graph neither it nor ``partition_name`` is looked at.
"""

from __future__ import annotations

from .graph import Graph, Tensor

#: The oldest IR version that has all this model needs; ONNX Runtime 1.24 reads up to 13.
IR_VERSION = 8

_ELEMENT = {
    "<f4": 1, "|u1": 2, "|i1": 3, "<u2": 4, "<i2": 5, "<i4": 6, "<i8": 7,
    "|b1": 9, "<f2": 10, "<f8": 11, "<u4": 12, "<u8": 13,
}  # fmt: skip
_ATTRIBUTE_INT, _ATTRIBUTE_STRING = 2, 3


def wrap(graph: Graph, binary: str) -> bytes:
    """The serialized model for ``graph`` of the file ``binary``, a name beside the model."""
    node = b"".join(
        [
            *(_bytes(1, tensor.name) for tensor in graph.inputs),
            *(_bytes(2, tensor.name) for tensor in graph.outputs),
            _bytes(3, graph.name),
            _bytes(4, "EPContext"),
            _bytes(7, "com.microsoft"),
            _integer_attribute("main_context", 1),
            _integer_attribute("embed_mode", 0),
            _string_attribute("ep_cache_context", binary),
            _string_attribute("source", "QNNExecutionProvider"),
            _string_attribute("partition_name", graph.name),
        ]
    )
    body = b"".join(
        [
            _bytes(1, node),
            _bytes(2, graph.name or "graph"),
            *(_bytes(11, _value_info(tensor)) for tensor in graph.inputs),
            *(_bytes(12, _value_info(tensor)) for tensor in graph.outputs),
        ]
    )
    return b"".join(
        [
            _integer(1, IR_VERSION),
            _bytes(2, "pytest-qnnctx"),
            _bytes(7, body),
            _bytes(8, _bytes(1, "") + _integer(2, 17)),
            _bytes(8, _bytes(1, "com.microsoft") + _integer(2, 1)),
        ]
    )


def _value_info(tensor: Tensor) -> bytes:
    shape = b"".join(_bytes(1, _integer(1, size)) for size in tensor.shape)
    kind = _integer(1, _ELEMENT[tensor.storage]) + _bytes(2, shape)
    return _bytes(1, tensor.name) + _bytes(2, _bytes(1, kind))


def _integer_attribute(name: str, value: int) -> bytes:
    return _bytes(5, _bytes(1, name) + _integer(3, value) + _integer(20, _ATTRIBUTE_INT))


def _string_attribute(name: str, value: str) -> bytes:
    return _bytes(5, _bytes(1, name) + _bytes(4, value) + _integer(20, _ATTRIBUTE_STRING))


def _bytes(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
