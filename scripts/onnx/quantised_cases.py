"""Random cases of quantised operators, for contrib_operators.py: shapes, scales, zero points and
extremes. Each case is a model of one node with its inputs; scales, zero points and weights are
constants of the model, as quantisers write them.
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

U8, S8 = np.uint8, np.int8


class Cases:
    """Makes models of one operator each."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def integers(self, dtype, *shape):
        """Random integers of a type, its least and its largest among them."""
        info = np.iinfo(dtype)
        data = self.random.integers(info.min, info.max + 1, shape).astype(dtype)
        if data.size > 1 and self.random.random() < 0.5:
            data.flat[0], data.flat[-1] = info.min, info.max
        return data

    def floats(self, *shape):
        return self.random.uniform(-1, 1, shape).astype("float32")

    def weights(self, activations, dtype, *shape):
        """Weights beside activations of a type. Of signed ones beside unsigned activations only half
        the range is used: onnxruntime's sums of pairs saturate beyond on processors without VNNI."""
        data = self.integers(dtype, *shape)
        return data // 2 if activations == U8 and dtype == S8 else data

    def scale(self, *shape):
        """Scales of many sizes."""
        return (2.0 ** self.random.uniform(-9, 3, shape)).astype("float32")

    def zero(self, dtype, *shape):
        """Zero points: often an end of their range, or its middle."""
        info = np.iinfo(dtype)
        some = np.array([info.min, info.max, (info.min + info.max + 1) // 2])
        if self.random.random() < 0.5:
            return np.broadcast_to(self.random.choice(some), shape).astype(dtype)
        return self.integers(dtype, *shape) if shape else np.array(self.integers(dtype, 1)[0])

    def quantised(self, dtype, *shape):
        """A tensor, its scale and its zero point."""
        return self.integers(dtype, *shape), self.scale(), self.zero(dtype)

    def shape(self, rank=None, most=9):
        rank = rank or int(self.random.integers(1, 5))
        return [int(n) for n in self.random.integers(1, most, rank)]

    def either(self):
        return U8 if self.random.random() < 0.5 else S8


def model_of(op, operands, given, out, attributes=None, domain="com.microsoft"):
    """A model of one node; the operands of the places `given` are inputs, others constants. `out`
    is the type of the result."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(operands)]
    node = helper.make_node(op, names, ["y"], name="node", domain=domain, **(attributes or {}))
    inputs, constants, feed = [], [], []
    for i, (name, array) in enumerate(zip(names, operands)):
        if array is None:
            continue
        array = np.asarray(array)
        if i in given:
            dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(name, dtype, array.shape))
            feed.append(array)
        else:
            constants.append(numpy_helper.from_array(array, name))
    result = helper.make_tensor_value_info("y", out, None)
    graph = helper.make_graph([node], "case", inputs, [result], constants)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10), feed


def tensor_type(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def pointwise(c):
    """Sums, products and functions of quantised tensors."""
    for op in ("QLinearAdd", "QLinearMul"):
        d, shape = c.either(), c.shape()
        cut = int(c.random.integers(0, len(shape)))
        other = [n if c.random.random() < 0.7 else 1 for n in shape[cut:]]
        operands = [*c.quantised(d, *shape), *c.quantised(d, *other), c.scale(), c.zero(d)]
        yield op, model_of(op, operands, (0, 3), tensor_type(d))
    for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        d = c.either()
        attributes = {} if op == "QLinearSigmoid" else {"alpha": float(c.random.uniform(0, 1))}
        operands = [*c.quantised(d, *c.shape()), c.scale(), c.zero(d)]
        yield op, model_of(op, operands, (0,), tensor_type(d), attributes)
    d, shape = c.either(), c.shape()
    # onnxruntime writes these parameters: a result of 1 is 256 steps.
    out = [np.float32(1 / 256), d(np.iinfo(d).min)]
    axis = int(c.random.integers(0, len(shape)))
    yield "QLinearSoftmax", model_of(
        "QLinearSoftmax",
        [c.integers(d, *shape), np.float32(c.random.uniform(0.01, 0.2)), c.zero(d), *out],
        (0,),
        tensor_type(d),
        {"axis": axis, "opset": 13},
    )
    d, shape = c.either(), c.shape(rank=3)
    axis = int(c.random.integers(-3, 3))
    parts = [c.scale(), c.zero(d)]
    places = []
    for _ in range(int(c.random.integers(1, 4))):
        own = list(shape)
        own[axis] = int(c.random.integers(1, 5))
        places.append(len(parts))
        parts += c.quantised(d, *own)
    yield "QLinearConcat", model_of("QLinearConcat", parts, places, tensor_type(d), {"axis": axis})


def pools(c):
    d, last = c.either(), int(c.random.random() < 0.5)
    image = c.shape(rank=4, most=7)
    operands = [*c.quantised(d, *image), c.scale(), c.zero(d)]
    name = "QLinearGlobalAveragePool"
    yield name, model_of(name, operands, (0,), tensor_type(d), {"channels_last": last})
    kernel = [int(n) for n in c.random.integers(1, 4, 2)]
    pads = [int(c.random.integers(0, k)) for k in kernel * 2]
    image = [1 + int(c.random.integers(0, 3)), 3, *(int(n) for n in c.random.integers(4, 9, 2))]
    if last:
        image = [image[0], *image[2:], image[1]]
    attributes = {
        "kernel_shape": kernel,
        "pads": pads,
        "strides": [int(n) for n in c.random.integers(1, 3, 2)],
        "count_include_pad": int(c.random.random() < 0.5),
        "channels_last": last,
    }
    operands = [*c.quantised(d, *image), c.scale(), c.zero(d)]
    name = "QLinearAveragePool"
    yield name, model_of(name, operands, (0,), tensor_type(d), attributes)


def products(c):
    a, b = c.either(), c.either()
    if a == S8:
        b = S8  # onnxruntime has no product of signed and unsigned bytes in this order
    m, k, n = (int(v) for v in c.random.integers(1, 40, 3))
    columns = (n,) if c.random.random() < 0.5 else ()
    flips = [int(c.random.random() < 0.5) for _ in range(2)]
    left = c.integers(a, *((k, m) if flips[0] else (m, k)))
    right = c.weights(a, b, *((n, k) if flips[1] else (k, n)))
    scales = [c.scale(), c.scale(*columns)]
    zeros = [c.zero(a), c.zero(b, *columns)]
    bias = c.random.integers(-9999, 9999, n).astype("int32") if c.random.random() < 0.5 else None
    alpha = float(c.random.choice([1.0, 0.5]))
    attributes = {"alpha": alpha, "transA": flips[0], "transB": flips[1]}
    operands = [left, scales[0], zeros[0], right, scales[1], zeros[1], bias]
    if c.random.random() < 0.5:
        yield "QGemm", model_of("QGemm", operands, (0,), TensorProto.FLOAT, attributes)
    else:
        big = np.float32(np.max(scales[1]) * scales[0] * k * 64)
        operands += [big, c.zero(a)]
        yield "QGemm", model_of("QGemm", operands, (0,), tensor_type(a), attributes)
    bias = c.floats(n) if c.random.random() < 0.5 else None
    left, right = c.integers(a, m, k), c.weights(a, b, k, n)
    operands = [left, right, *scales, *zeros, bias]
    name = "MatMulIntegerToFloat"
    yield name, model_of(name, operands, (0,), TensorProto.FLOAT)
    right = c.weights(U8, b, k, n)
    operands = [c.floats(2, m, k) * c.scale(), right, scales[1], zeros[1], bias]
    name = "DynamicQuantizeMatMul"
    yield name, model_of(name, operands, (0,), TensorProto.FLOAT)


def conversions(c):
    """onnxruntime's own QuantizeLinear and DequantizeLinear, and the standard ones in blocks."""
    d = c.random.choice([U8, S8, np.uint16, np.int16])
    shape = c.shape(rank=3)
    axis = int(c.random.integers(-3, 3))
    parameters = (shape[axis],) if c.random.random() < 0.5 else ()
    scale, zero = c.scale(*parameters), c.zero(d, *parameters)
    x = c.floats(*shape) * np.float32(2.0 ** c.random.uniform(-3, 9))
    for domain in ("com.microsoft", ""):
        name = f"QuantizeLinear {domain or 'standard'}"
        q = model_of("QuantizeLinear", [x, scale, zero], (0,), tensor_type(d), {"axis": axis}, domain)
        yield name, q
        operands = [c.integers(d, *shape), scale, zero]
        kind = TensorProto.FLOAT
        q = model_of("DequantizeLinear", operands, (0,), kind, {"axis": axis}, domain)
        yield name.replace("Quantize", "Dequantize"), q
    block = int(c.random.integers(1, 7))
    blocks = list(shape)
    blocks[axis] = -(-shape[axis] // block)
    attributes = {"axis": axis, "block_size": block}
    scale, zero = c.scale(*blocks), c.zero(d, *blocks)
    q = model_of("QuantizeLinear", [x, scale, zero], (0,), tensor_type(d), attributes, "")
    yield "QuantizeLinear in blocks", q
    for given in ((0,), ()):
        operands = [c.integers(d, *shape), scale, zero]
        q = model_of("DequantizeLinear", operands, given, TensorProto.FLOAT, attributes, "")
        # A model without inputs is folded as a whole.
        yield f"DequantizeLinear in blocks{'' if given else ', of a constant'}", q


def few_bits(c):
    """MatMulNBits."""
    bits = int(c.random.choice([4, 8]))
    block = int(c.random.choice([16, 32, 64, 128, 256]))
    k = int(c.random.integers(1, 3 * block))
    if c.random.random() < 0.5:
        k = -(-k // block) * block
    n, blocks = int(c.random.integers(1, 70)), -(-k // block)
    rows = [int(v) for v in c.random.integers(1, 12, int(c.random.integers(1, 3)))]
    x = c.floats(*rows, k)
    codes = c.random.integers(0, 256, (n, blocks, block * bits // 8)).astype("uint8")
    scales = (c.floats(n, blocks) * 0.02).astype("float32")
    zeros = None
    chosen = c.random.integers(0, 3)
    if chosen == 1:
        zeros = c.random.integers(0, 256, (n, -(-blocks * bits // 8))).astype("uint8")
    elif chosen == 2 and bits == 4:
        zeros = c.random.uniform(6, 10, (n, blocks)).astype("float32")
    bias = c.floats(n) if c.random.random() < 0.5 else None
    groups = None
    if c.random.random() < 0.2:
        groups = c.random.permutation(np.arange(k) // block).astype("int32")
    level = 4 if c.random.random() < 0.5 and groups is None else 0
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level}
    operands = [x, codes, scales, zeros, groups, bias]
    given = (0,) if c.random.random() < 0.7 else (0, 1, 2, 3)
    name = f"MatMulNBits of {bits} bits, level {level}"
    yield name, model_of("MatMulNBits", operands, given, TensorProto.FLOAT, attributes)


def cases(seed, rounds):
    """(name, (model, inputs)) of so many rounds over all operators."""
    c = Cases(seed)
    for _ in range(rounds):
        for family in (pointwise, pools, products, conversions, few_bits):
            yield from family(c)
