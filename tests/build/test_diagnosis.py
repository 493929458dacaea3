"""Reading the compiler's log. The lines have the form that onnxruntime-qnn 2.7.0 printed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_qnnctx.build.ort_diagnosis import diagnose, last_errors, plain_log, unsupported_nodes
from pytest_qnnctx.model import Target

V68 = Target("QCS6490", "v68", 93, 2, has_float=False)
V73 = Target("SM8550", "v73", 43, 8, has_float=True)
LOG = (
    "\x1b[0;93m2026 [W:onnxruntime:, qnn_model_wrapper.cc:565 CreateQnnNode] "
    "QNN.backendValidateOpConfig() failed for node `conv1_token_1` of type `Conv2d` with error "
    "code 3110\n\x1b[m\x1b[1;31m2026 [E:onnxruntime:, qnn_execution_provider.cc:2453 "
    "GetCapabilityImpl] Unsupported nodes in QNN EP: { name: Relu_1, type: Relu }, \x1b[m\n"
    "\x1b[1;31m2026 [E:onnxruntime:, qnn_execution_provider.cc:2453 GetCapabilityImpl] "
    "Unsupported nodes in QNN EP: { name: conv1_token_1, type: Conv }"
    "{ name: Relu_1, type: Relu }\x1b[m\nsomething else\n"
)


def test_every_refused_node_is_named_once():
    assert unsupported_nodes(plain_log(LOG)) == (("Relu_1", "Relu"), ("conv1", "Conv"))


def test_float_nodes_are_told_from_unsupported_ones():
    kinds = {f.subject: f.kind for f in diagnose(plain_log(LOG), {"conv1"}, V68)}
    assert kinds == {"conv1 (Conv)": "float_op", "Relu_1 (Relu)": "unsupported_op"}


def test_on_a_part_with_floating_point_that_is_not_the_cause():
    assert {f.kind for f in diagnose(plain_log(LOG), {"conv1"}, V73)} == {"unsupported_op"}


def test_colours_are_taken_off():
    assert "\x1b" not in plain_log(LOG)


def test_the_last_errors():
    assert last_errors(plain_log(LOG), 1).endswith("{ name: Relu_1, type: Relu }")
    assert last_errors("a\nb\n", 1) == "b"
    assert last_errors("") == ""


@given(st.text())
def test_any_text_is_read(text):
    diagnose(plain_log("Unsupported nodes in QNN EP: " + text), (), V68)
    last_errors(text)
