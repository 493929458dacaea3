"""Train the quickstart's digit classifier and write everything that its test reads.

Needs scikit-learn (for the images), numpy and onnx; no training framework. Run it as
``python train_digits.py``; it takes a few seconds and writes, beside itself or into
``--output DIR``:

``digits.onnx``          the FP32 network: ``image`` 1x1x8x8 in [0, 1] -> ``logits`` 1x10, opset 17
``digits.encodings``     its ranges in AIMET's 1.0.0 form: W8A8, weights per output channel
``digits_heldout.npz``   400 images (uint8, 0 to 16) and labels, never trained or calibrated on

The seed is fixed. Another machine's BLAS may round differently, so the weights agree closely but
not to the last bit; the held-out images are the same everywhere.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

SEED = 7
HELD_OUT_PER_CLASS = 40
EPOCHS = 15
BATCH = 48
LEARNING_RATE = 3e-3

Arrays = dict[str, np.ndarray]


def split_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images and labels, then held-out ones: (n, 8, 8) uint8 and (n,) uint8."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.RandomState(SEED).permutation(len(digits.target))
    images, labels = digits.images[order].astype(np.uint8), digits.target[order].astype(np.uint8)
    held_out = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        held_out[np.flatnonzero(labels == digit)[:HELD_OUT_PER_CLASS]] = True
    return images[~held_out], labels[~held_out], images[held_out], labels[held_out]


def as_input(images: np.ndarray) -> np.ndarray:
    """(n, 8, 8) uint8 from 0 to 16 -> (n, 8, 8, 1) float32 from 0 to 1."""
    return images[..., None].astype(np.float32) / np.float32(16)


def init_weights(random: np.random.RandomState) -> Arrays:
    """He-initialised weights by the names that they carry in the ONNX file."""
    shapes = {
        "conv1.weight": (16, 1, 3, 3),
        "conv2.weight": (24, 16, 3, 3),
        "conv3.weight": (32, 24, 3, 3),
        "fc.weight": (10, 128),
    }
    weights: Arrays = {}
    for name, shape in shapes.items():
        spread = np.sqrt(2 / np.prod(shape[1:]))
        weights[name] = random.normal(0, spread, shape).astype(np.float32)
        weights[name.replace("weight", "bias")] = np.zeros(shape[0], dtype=np.float32)
    return weights


def patches(x: np.ndarray) -> np.ndarray:
    """Every 3x3 neighbourhood, zero padded: (n, h, w, c) -> (n*h*w, 9*c)."""
    _, h, w, c = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [padded[:, i : i + h, j : j + w] for i in range(3) for j in range(3)]
    return np.concatenate(shifted, axis=3).reshape(-1, 9 * c)


def conv(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """3x3 convolution, stride 1, same size: (n, h, w, c) with (o, c, 3, 3) -> (n, h, w, o)."""
    columns = weight.transpose(2, 3, 1, 0).reshape(-1, len(weight))
    return (patches(x) @ columns).reshape(*x.shape[:3], -1)


def conv_input_gradient(weight: np.ndarray, grad: np.ndarray) -> np.ndarray:
    """The gradient of conv's input: the same convolution with the kernel turned round."""
    return conv(grad, weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3))


def conv_weight_gradient(x: np.ndarray, grad: np.ndarray) -> np.ndarray:
    """The gradient of conv's weight, (o, c, 3, 3)."""
    columns = patches(x).T @ grad.reshape(-1, grad.shape[3])
    return columns.reshape(3, 3, x.shape[3], -1).transpose(3, 2, 0, 1)


def blocks(x: np.ndarray) -> np.ndarray:
    """The 2x2 blocks that pooling looks at: (n, h, w, c) -> (n, h/2, 2, w/2, 2, c)."""
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c)


def pool_gradient(x: np.ndarray, pooled: np.ndarray, grad: np.ndarray) -> np.ndarray:
    """Hand the gradient to the largest value of each 2x2 block; equal values share it."""
    winners = (blocks(x) == pooled[:, :, None, :, None, :]).astype(np.float32)
    winners *= (grad / winners.sum(axis=(2, 4)))[:, :, None, :, None, :]
    return winners.reshape(x.shape)


def forward(weights: Arrays, image: np.ndarray) -> Arrays:
    """Every activation by the name that it carries in the ONNX file; channels last here."""

    def layer(x: np.ndarray, name: str) -> np.ndarray:
        return np.maximum(conv(x, weights[f"{name}.weight"]) + weights[f"{name}.bias"], 0)

    acts: Arrays = {"image": image}
    acts["relu1"] = layer(image, "conv1")
    acts["relu2"] = layer(acts["relu1"], "conv2")
    acts["pool2"] = blocks(acts["relu2"]).max(axis=(2, 4))
    acts["relu3"] = layer(acts["pool2"], "conv3")
    acts["pool3"] = blocks(acts["relu3"]).max(axis=(2, 4))
    acts["flat"] = acts["pool3"].transpose(0, 3, 1, 2).reshape(len(image), -1)
    acts["logits"] = acts["flat"] @ weights["fc.weight"].T + weights["fc.bias"]
    return acts


def gradients(weights: Arrays, acts: Arrays, labels: np.ndarray) -> Arrays:
    """Gradients of the mean cross entropy, for every weight and bias."""
    grads: Arrays = {}
    odds = np.exp(acts["logits"] - acts["logits"].max(axis=1, keepdims=True))
    grad = odds / odds.sum(axis=1, keepdims=True)
    grad[np.arange(len(labels)), labels] -= 1
    grad /= np.float32(len(labels))
    grads["fc.weight"], grads["fc.bias"] = grad.T @ acts["flat"], grad.sum(axis=0)

    n, h, w, c = acts["pool3"].shape
    grad = (grad @ weights["fc.weight"]).reshape(n, c, h, w).transpose(0, 2, 3, 1)
    grad = pool_gradient(acts["relu3"], acts["pool3"], grad) * (acts["relu3"] > 0)
    grads["conv3.weight"] = conv_weight_gradient(acts["pool2"], grad)
    grads["conv3.bias"] = grad.sum(axis=(0, 1, 2))

    grad = conv_input_gradient(weights["conv3.weight"], grad)
    grad = pool_gradient(acts["relu2"], acts["pool2"], grad) * (acts["relu2"] > 0)
    grads["conv2.weight"] = conv_weight_gradient(acts["relu1"], grad)
    grads["conv2.bias"] = grad.sum(axis=(0, 1, 2))

    grad = conv_input_gradient(weights["conv2.weight"], grad) * (acts["relu1"] > 0)
    grads["conv1.weight"] = conv_weight_gradient(acts["image"], grad)
    grads["conv1.bias"] = grad.sum(axis=(0, 1, 2))
    return grads


def train(images: np.ndarray, labels: np.ndarray, epochs: int = EPOCHS) -> Arrays:
    """Adam with a learning rate that falls to zero along a cosine; returns the weights."""
    random = np.random.RandomState(SEED)
    weights = init_weights(random)
    mean = {name: np.zeros_like(value) for name, value in weights.items()}
    square = {name: np.zeros_like(value) for name, value in weights.items()}
    step, steps = 0, epochs * (len(labels) // BATCH)
    for _ in range(epochs):
        order = random.permutation(len(labels))
        for start in range(0, len(labels) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            rate = np.float32(LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / steps)))
            step += 1
            acts = forward(weights, images[chosen])
            for name, grad in gradients(weights, acts, labels[chosen]).items():
                mean[name] += np.float32(0.1) * (grad - mean[name])
                square[name] += np.float32(0.001) * (grad * grad - square[name])
                unbiased = square[name] / np.float32(1 - 0.999**step)
                momentum = mean[name] / np.float32(1 - 0.9**step)
                weights[name] -= rate * momentum / (np.sqrt(unbiased) + np.float32(1e-8))
    return weights


def accuracy(weights: Arrays, images: np.ndarray, labels: np.ndarray) -> float:
    """The share of images whose largest logit is the label's."""
    return float(np.mean(forward(weights, images)["logits"].argmax(axis=1) == labels))


def save_onnx(weights: Arrays, path: Path) -> None:
    """Write the FP32 network with fixed shapes; ``path`` is replaced."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def conv_relu(number: int, source: str) -> list[onnx.NodeProto]:
        name = f"conv{number}"
        inputs = [source, f"{name}.weight", f"{name}.bias"]
        return [
            helper.make_node("Conv", inputs, [name], name=name, pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [name], [f"relu{number}"], name=f"relu{number}"),
        ]

    def max_pool(source: str, result: str) -> onnx.NodeProto:
        return helper.make_node(
            "MaxPool", [source], [result], name=result, kernel_shape=[2, 2], strides=[2, 2]
        )

    nodes = [
        *conv_relu(1, "image"),
        *conv_relu(2, "relu1"),
        max_pool("relu2", "pool2"),
        *conv_relu(3, "pool2"),
        max_pool("relu3", "pool3"),
        helper.make_node("Flatten", ["pool3"], ["flat"], name="flat"),
        helper.make_node("Gemm", ["flat", "fc.weight", "fc.bias"], ["logits"], name="fc", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def activation_encoding(name: str, values: np.ndarray) -> dict[str, object]:
    """An asymmetric 8-bit record over the plain minimum and maximum; zero is always in range."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = (high - low) / 255
    return {
        "name": name,
        "bw": 8,
        "dtype": "INT",
        "enc_type": "PER_TENSOR",
        "is_sym": False,
        "offset": [float(round(low / scale))],
        "scale": [scale],
    }


def weight_encoding(name: str, values: np.ndarray) -> dict[str, object]:
    """A symmetric 8-bit record with one scale for each output channel (axis 0)."""
    largest = np.abs(values.reshape(len(values), -1)).max(axis=1)
    return {
        "name": name,
        "bw": 8,
        "dtype": "INT",
        "enc_type": "PER_CHANNEL",
        "is_sym": True,
        "offset": [-128.0] * len(values),
        "scale": [float(value) / 127 for value in largest],
    }


def save_encodings(weights: Arrays, images: np.ndarray, path: Path) -> None:
    """Write AIMET's 1.0.0 form: input, activations after Relu, output, and weights.

    The output of each convolution is left out (Relu is fused into it), pooling and Flatten
    inherit their source's encoding, and a bias takes input scale times weight scale.
    """
    acts = forward(weights, images)
    encoded = ("image", "relu1", "relu2", "relu3", "logits")
    record = {
        "version": "1.0.0",
        "producer": {"package": "train_digits.py", "version": "1"},
        "quantizer_args": {
            "activation_bitwidth": 8,
            "param_bitwidth": 8,
            "dtype": "int",
            "is_symmetric": True,
            "per_channel_quantization": True,
            "quant_scheme": "min_max",
        },
        "activation_encodings": [activation_encoding(name, acts[name]) for name in encoded],
        "param_encodings": [
            weight_encoding(name, value) for name, value in weights.items() if value.ndim > 1
        ],
    }
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Train, write the three files and print the FP32 accuracy."""
    parser = argparse.ArgumentParser(description="Train the quickstart's digit classifier.")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)

    train_images, train_labels, test_images, test_labels = split_digits()
    weights = train(as_input(train_images), train_labels, options.epochs)
    save_onnx(weights, options.output / "digits.onnx")
    save_encodings(weights, as_input(train_images), options.output / "digits.encodings")
    np.savez_compressed(
        options.output / "digits_heldout.npz", images=test_images, labels=test_labels
    )
    trained = accuracy(weights, as_input(train_images), train_labels)
    held_out = accuracy(weights, as_input(test_images), test_labels)
    print(f"FP32 top1: {trained:.4f} on training images, {held_out:.4f} on {len(test_labels)}")


if __name__ == "__main__":
    main()
