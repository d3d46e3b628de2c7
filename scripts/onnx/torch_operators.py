"""The 79 operators of the shared `peers/operators.py` as a person would write them in PyTorch.

`gpu_operators.py` times them beside Squall. `WAYS[name]` has one or several ways to write the
operator `name`, the first of which also gives the reference in 64-bit floats. A way takes the
model's inputs and its constants (None where an operand is left out), and gives a function with the
arguments that it is called with: work that depends on constants alone is done there, ahead of the
timed call, as Squall prepares weights once. Every function gives the model's first output.

32-bit floats stay 32-bit floats: the caller switches TF32 off.
"""

import numpy as np
import torch
import torch.nn.functional as F


def of(fn, constants=True):
    """A way whose function takes the inputs and, where it needs them, the constants as they are."""
    return lambda x, w: (fn, [*x, *(c for c in w if constants and c is not None)])


def convolution(fn, **options):
    """A convolution with or without a bias."""
    return of(lambda x, *w: fn(x, *w, **options))


# ---- recurrences -------------------------------------------------------------------------------

# The places of PyTorch's gates among ONNX's: i, f, g, o of i, o, f, c; and r, z, n of z, r, h.
GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}


def recurrence(kind, hidden):
    """An LSTM or GRU as a module of PyTorch, which has its gates in another order. The GRU is that
    with `linear_before_reset`."""

    def make(x, w):
        inner, outer, bias = w
        directions, gates = inner.shape[0], len(GATES[kind])

        def ordered(a):
            parts = a.chunk(gates)
            return torch.cat([parts[i] for i in GATES[kind]])

        module = getattr(torch.nn, kind)(inner.shape[2], hidden, bidirectional=directions == 2)
        module = module.to(x[0].device, x[0].dtype)
        with torch.no_grad():
            for d in range(directions):
                of_input, of_state = bias[d].chunk(2)
                parts = (inner[d], outer[d], of_input, of_state)
                names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                for name, part in zip(names, parts):
                    getattr(module, f"{name}_l0{'_reverse' * d}").copy_(ordered(part))
        module.flatten_parameters()

        def run(a):
            y = module(a)[0]
            return y.view(*y.shape[:2], directions, hidden).permute(0, 2, 1, 3).contiguous()

        return run, [x[0]]

    return make


# ---- selections --------------------------------------------------------------------------------


def nms(boxes, scores, *_):
    """ONNX's NonMaxSuppression of one image and one class: at most 100 boxes that overlap by no
    more than half, with scores above 0.3. ONNX's corners are y, x and PyTorch's x, y, which
    changes no overlap."""
    import torchvision

    above = (scores[0, 0] > 0.3).nonzero()[:, 0]
    kept = torchvision.ops.nms(boxes[0][above], scores[0, 0][above], 0.5)[:100]
    chosen = above[kept]
    return torch.stack([torch.zeros_like(chosen), torch.zeros_like(chosen), chosen], 1)


def roi_align(x, rois, _):
    """All regions lie in image 0; ONNX's half_pixel is torchvision's `aligned`."""
    import torchvision

    return torchvision.ops.roi_align(x, [rois], (7, 7), 1.0, 2, aligned=True)


def deform_conv(x, weight, offset):
    import torchvision

    return torchvision.ops.deform_conv2d(x, offset, weight, padding=1)


def scattered(data, index, updates):
    """A row that is updated twice may get either update: ONNX leaves that open."""
    return data.index_put((index[:, 0],), updates)


def copied(data, index, updates):
    return data.clone().index_copy_(0, index[:, 0], updates)


def one_hot(x, w):
    """The depth is 1,000, and the values are 0 and 1."""
    numbers = torch.arange(int(w[0]), device=x[0].device)
    return lambda i, n: (i[..., None] == n).to(w[1].dtype), [x[0], numbers]


def one_hot_of_library(x, w):
    depth = int(w[0])
    return lambda i: F.one_hot(i, depth).to(w[1].dtype), [x[0]]


# ---- norms and moves ---------------------------------------------------------------------------


def mean_variance(x):
    variance, mean = torch.var_mean(x, (0, 2, 3), correction=0, keepdim=True)
    return (x - mean) / (variance.sqrt() + 1e-9)


def depth_to_space(x):
    """ONNX's DCR: the block's place lies ahead of the channel, unlike in pixel_shuffle."""
    n, c, h, w = x.shape
    y = x.reshape(n, 2, 2, c // 4, h, w).permute(0, 3, 4, 1, 5, 2)
    return y.reshape(n, c // 4, h * 2, w * 2)


def rotary(x, cos, sin):
    """Rotates halves, not pairs."""
    a, b = x.chunk(2, -1)
    c, s = cos[:, None], sin[:, None]
    return torch.cat((a * c - b * s, a * s + b * c), -1)


# ---- numbers of 8 bits -------------------------------------------------------------------------


def integer_floats(x, w):
    """Products and sums of whole numbers in floats: exact while partial sums stay below 2^24,
    which these have (the result is compared)."""
    scale = torch.float64 if w[0].dtype == torch.float64 else torch.float32
    return lambda a, b: (a.to(scale) @ b).to(torch.int32), [x[0], w[0].to(scale)]


def integer_products(x, w):
    """Products on the integer tensor cores, which take signed bytes only: 128 is taken from the
    input's bytes, and 128 times the sum of each column of the weights is added to the products."""
    added = 128 * w[0].to(torch.int32).sum(0, dtype=torch.int32)

    def run(a, b, c):
        return torch._int_mm((a ^ 128).view(torch.int8), b) + c

    return run, [x[0], w[0], added]


def quantized(x):
    """ONNX's DynamicQuantizeLinear: the range holds 0, and halves are rounded to even numbers."""
    least, most = torch.aminmax(x)
    least, most = least.clamp(max=0), most.clamp(min=0)
    scale = (most - least) / 255
    zero = (-least / scale).round().clamp(0, 255)
    return ((x / scale).round() + zero).clamp(0, 255).to(torch.uint8)


# ---- attention ---------------------------------------------------------------------------------


def attention_by_steps(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


# ---- the list ----------------------------------------------------------------------------------


def einsum(equation):
    return of(lambda a, b: torch.einsum(equation, a, b))


def unary(fn):
    """Without the operator's constants, which the function knows."""
    return of(fn, constants=False)


def resized(mode):
    options = {} if mode == "nearest" else {"align_corners": False}
    return unary(lambda x: F.interpolate(x, scale_factor=2, mode=mode, **options))


def permuted(*order):
    return unary(lambda x: x.permute(order).contiguous())


MATMUL = of(torch.matmul)

WAYS = {
    "einsum_windows": {"": einsum("bhid,bhjd->bhij")},
    "einsum_values": {"": einsum("bhij,bhjd->bhid")},
    "einsum_heads_last": {"": einsum("bqhd,bkhd->bhqk")},
    "einsum_dense": {"": einsum("bsd,dhk->bshk")},
    "matmul_batched": {"": MATMUL},
    "matmul_batch16": {"": MATMUL},
    "matmul_small_batched": {"": MATMUL},
    "matmul_vector": {"": MATMUL},
    "gemm_transA": {"": of(lambda a, b, c: torch.addmm(c, a.t(), b))},
    "conv1d": {"": convolution(F.conv1d, padding=1)},
    "conv3d": {"": convolution(F.conv3d, padding=1)},
    "conv_dilated": {"": convolution(F.conv2d, padding=4, dilation=4)},
    "conv_1xk": {"": convolution(F.conv2d, padding=(0, 3))},
    "conv_depthwise_large": {"": convolution(F.conv2d, padding=15, groups=96)},
    "conv_grouped": {"": convolution(F.conv2d, padding=1, groups=18)},
    "convtranspose_2x2": {"": convolution(F.conv_transpose2d, stride=2)},
    "convtranspose_4x4": {"": convolution(F.conv_transpose2d, stride=2, padding=1)},
    "convtranspose_1d": {"": convolution(F.conv_transpose1d, stride=8, padding=4)},
    "deformconv": {"": of(deform_conv)},
    "lstm": {"": recurrence("LSTM", 512)},
    "lstm_bidirectional": {"": recurrence("LSTM", 256)},
    "gru": {"": recurrence("GRU", 256)},
    "softmax_last": {"": unary(lambda x: torch.softmax(x, -1))},
    "softmax_channels": {"": unary(lambda x: torch.softmax(x, 1))},
    "logsoftmax": {"": unary(lambda x: torch.log_softmax(x, -1))},
    "layernorm": {"": of(lambda x, s, b: F.layer_norm(x, s.shape, s, b, 1e-5))},
    "instancenorm": {"": of(lambda x, s, b: F.instance_norm(x, weight=s, bias=b, eps=1e-5))},
    "groupnorm": {"": of(lambda x, s, b: F.group_norm(x, 32, s, b, 1e-5))},
    "batchnorm": {"": of(lambda x, s, b, m, v: F.batch_norm(x, m, v, s, b, eps=1e-5))},
    "mvn": {
        "": unary(mean_variance),
        "batch_norm": unary(lambda x: F.batch_norm(x, None, None, training=True, eps=1e-18)),
    },
    "lrn": {"": unary(lambda x: F.local_response_norm(x, 5, alpha=1e-4, beta=0.75, k=1.0))},
    "reduce_mean_last": {"": unary(lambda x: x.mean(-1, keepdim=True))},
    "reduce_mean_space": {"": unary(lambda x: x.mean((2, 3), keepdim=True))},
    "reduce_max_channels": {"": unary(lambda x: x.amax(1, keepdim=True))},
    "reduce_l2": {"": unary(lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True))},
    "argmax_channels": {"": unary(lambda x: x.argmax(1, keepdim=True))},
    "topk": {"": unary(lambda x: torch.topk(x, 1000, -1)[0])},
    "cumsum": {"": unary(lambda x: x.cumsum(1))},
    "resize_linear": {"": resized("bilinear")},
    "resize_nearest": {"": resized("nearest")},
    "resize_cubic": {"": resized("bicubic")},
    "gridsample": {"": of(lambda x, g: F.grid_sample(x, g, align_corners=False))},
    "roialign": {"": of(roi_align)},
    "nms": {"": of(nms)},
    "maxpool": {"": unary(lambda x: F.max_pool2d(x, 3, 2, 1))},
    "maxpool_5x5": {"": unary(lambda x: F.max_pool2d(x, 5, 1, 2))},
    "averagepool": {"": unary(lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False))},
    "globalmaxpool": {
        "": unary(lambda x: x.amax((2, 3), keepdim=True)),
        "pool": unary(lambda x: F.adaptive_max_pool2d(x, 1)),
    },
    "transpose_heads": {"": permuted(0, 2, 1, 3)},
    "transpose_windows": {"": permuted(0, 2, 4, 3, 5, 1)},
    "transpose_last": {"": permuted(0, 2, 1)},
    "concat_channels": {"": of(lambda a, b: torch.cat((a, b), 1))},
    "concat_last": {"": of(lambda a, b: torch.cat((a, b), 1))},
    "pad_reflect": {"": unary(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"))},
    "slice_strided": {"": unary(lambda x: x[:, :, ::2, ::2].contiguous())},
    "depth_to_space": {"": unary(depth_to_space)},
    "gather_rows": {
        "": of(lambda x, i: F.embedding(i, x)),
        "index_select": of(lambda x, i: x.index_select(0, i[0])[None]),
    },
    "gather_elements": {"": of(lambda x, i: torch.gather(x, 0, i))},
    "scatter_nd": {"": of(scattered), "index_copy": of(copied)},
    "onehot": {"": one_hot, "one_hot": one_hot_of_library},
    "where_mask": {"": of(torch.where)},
    "cast_to_float": {"": unary(lambda x: x.to(torch.float32))},
    "erf": {"": unary(torch.erf)},
    "tanh": {"": unary(torch.tanh)},
    "exp": {"": unary(torch.exp)},
    "pow_square": {"": unary(lambda x: torch.pow(x, 2.0))},
    "pow_general": {"": unary(lambda x: torch.pow(x, 0.45))},
    "sin": {"": unary(torch.sin)},
    "softplus": {"": unary(F.softplus)},
    "mish": {"": unary(F.mish)},
    "gelu": {"": unary(F.gelu)},
    "add_broadcast": {"": of(torch.add)},
    "mod_int": {"": of(torch.remainder)},
    "dft": {"": unary(lambda x: torch.view_as_real(torch.fft.rfft(x[..., 0])))},
    "matmul_integer": {"": integer_floats, "int_mm": integer_products},
    "dynamic_quantize": {"": unary(quantized)},
    "attention": {"": of(F.scaled_dot_product_attention), "steps": of(attention_by_steps)},
    "rmsnorm": {"": of(lambda x, s: F.rms_norm(x, s.shape, s, 1e-5))},
    "rotary": {"": of(rotary)},
}

# Operators that cuDNN or PyTorch also computes with channels last, where that may be faster.
CHANNELS_LAST = {
    *("conv3d", "conv_dilated", "conv_1xk", "conv_depthwise_large", "conv_grouped"),
    *("convtranspose_2x2", "convtranspose_4x4", "groupnorm", "batchnorm", "lrn", "resize_linear"),
    *("resize_nearest", "resize_cubic", "maxpool", "maxpool_5x5", "averagepool", "globalmaxpool"),
}

# Operators that are timed by calls from Python and not by a graph, with the reason.
LENGTH_BY_DATA = {"nms": "its result's length depends on data, which no graph captures"}


def placed(arrays, device, dtype, channels_last=False):
    """Arrays of numpy as tensors of a device: floats in the type that is asked for, images with
    their channels last if so wanted. None stays None."""
    tensors = []
    for a in arrays:
        if a is None:
            tensors.append(None)
            continue
        t = torch.from_numpy(np.array(a)).to(device)
        t = t.to(dtype) if t.is_floating_point() else t
        if channels_last and t.dim() == 4:
            t = t.contiguous(memory_format=torch.channels_last)
        elif channels_last and t.dim() == 5:
            t = t.contiguous(memory_format=torch.channels_last_3d)
        tensors.append(t)
    return tensors


def reference(name, inputs, constants, device):
    """The operator's result in 64-bit floats (whole numbers exactly), as an array of numpy."""
    x, w = (placed(a, device, torch.float64) for a in (inputs, constants))
    if name == "matmul_integer":
        w = [w[0].double()]
    with torch.inference_mode():
        fn, arguments = next(iter(WAYS[name].values()))(x, w)
        return fn(*arguments).cpu().numpy()
