"""Loops that numba compiles: the passes of small networks, and the conversion of images.

A network here is linear layers with ReLU between them, maybe after MinAtar's convolution of 3 x 3
cells to 16 channels. Its parameters lie in one flat array, and so do their gradients.

``layout`` describes a network: row 0 is the convolution (channels, height, width, where its weights
and biases start), all zeros where there is none; each further row is a linear layer (inputs,
outputs, where weights and biases start, 0). The weights of a linear layer have a row for each
input, so that acting can skip the inputs that are 0, about half of them after a ReLU.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any, NamedTuple

import numpy as np

from medqn_tianshou.fast.blas import product
from medqn_tianshou.files.compiling import compiled

CHANNELS, KERNEL = 16, 3
"""Of MinAtar's convolution."""
EDGE = KERNEL - 1
_BLOCK = 256
# Not "fast": NaN must remain NaN.
kernel = compiled(fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy")
exact = compiled(error_model="numpy")
"""For results that must be rounded as numpy rounds them."""
_ZERO = np.float32(0)


class Work(NamedTuple):
    """Memory for the passes over some states of a network.

    Every array has a row for each feature and a column for each state, the fastest layout for BLAS.
    """

    values: Any
    """The inputs of each linear layer, and the output of the last."""
    gradients: Any
    """Of the values."""
    places: Any
    """Where each of these starts."""
    cells: Any
    """The observations of a grid."""
    patches: Any
    """The inputs of the convolution: a row for each, a column for each place and state."""
    products: Any


@kernel
def embed(obs, layout, work, first, count):  # pragma: no cover
    """Prepare the pass of ``count`` states, of which these, a row each, start at ``first``."""
    cells = work.values if layout[0, 0] == 0 else work.cells
    for i in range(obs.shape[1]):
        row = cells[i * count + first : i * count + first + len(obs)]
        for state in range(len(obs)):
            row[state] = obs[state, i]


@kernel
def _convolve(params, layout, work, count):  # pragma: no cover
    """Write the features of the embedded states: ReLU of the convolution."""
    channels, height, width, weight_at, bias_at = layout[0]
    rows, length = height - EDGE, (width - EDGE) * count
    line = 0
    for channel in range(channels):
        for ky in range(KERNEL):
            for kx in range(KERNEL):
                for y in range(rows):
                    at = ((channel * height + y + ky) * width + kx) * count
                    seen, patch = work.cells[at : at + length], work.patches[line : line + length]
                    for i in range(length):
                        patch[i] = seen[i]
                    line += length
    inputs, places = channels * KERNEL**2, rows * length
    weight = params[weight_at : weight_at + CHANNELS * inputs]
    product(
        False, False, CHANNELS, places, inputs, weight, work.patches, False, work.values,
        work.products,
    )  # fmt: skip
    _add_bias(work.values, params[bias_at : bias_at + CHANNELS], places, True)


@kernel
def _add_bias(values, biases, length, rectify):  # pragma: no cover
    """Add the bias of each row, and apply ReLU."""
    for row in range(len(biases)):
        bias = biases[row]
        line = values[row * length : (row + 1) * length]
        for i in range(length):
            value = line[i] + bias
            line[i] = _ZERO if rectify and value < 0 else value


@kernel
def forward(params, layout, work, count):  # pragma: no cover
    """Evaluate the network for the embedded states."""
    if layout[0, 0] > 0:
        _convolve(params, layout, work, count)
    last = len(layout) - 1
    for layer in range(1, last + 1):
        inputs, outputs, weight_at, bias_at, _ = layout[layer]
        at = work.places[layer - 1]
        given = work.values[at : at + inputs * count]
        at = work.places[layer]
        result = work.values[at : at + outputs * count]
        weight = params[weight_at : weight_at + outputs * inputs]
        if count == 1:  # acting: for a single column, BLAS takes several times as long
            _apply_to_one(weight, given, result)
        else:
            product(
                True, False, outputs, count, inputs, weight, given, False, result, work.products
            )
        _add_bias(result, params[bias_at : bias_at + outputs], count, layer < last)


@kernel
def _apply_to_one(weight, given, result):  # pragma: no cover
    """Multiply a state with a layer's weights, four non-zero inputs at a time."""
    outputs = len(result)
    result[:] = _ZERO
    active = np.empty(len(given) + 3, np.int64)
    count = 0
    for i in range(len(given)):
        active[count] = i
        count += given[i] != 0
    active[count : count + 3] = active[0]
    for k in range(0, count, 4):
        a, b, c, d = active[k], active[k + 1], active[k + 2], active[k + 3]
        left = count - k
        va = given[a]
        vb = given[b] if left > 1 else _ZERO
        vc = given[c] if left > 2 else _ZERO
        vd = given[d] if left > 3 else _ZERO
        row_a, row_b = weight[a * outputs : (a + 1) * outputs], weight[b * outputs :]
        row_c, row_d = weight[c * outputs :], weight[d * outputs :]
        for out in range(outputs):
            result[out] += row_a[out] * va + row_b[out] * vb + (row_c[out] * vc + row_d[out] * vd)


@kernel
def backward(params, grads, layout, work, count):  # pragma: no cover
    """Write the gradients of all parameters, after :func:`forward` of the same states."""
    for layer in range(len(layout) - 1, 0, -1):
        inputs, outputs, weight_at, bias_at, _ = layout[layer]
        at = work.places[layer - 1]
        given, to_input = work.values[at : at + inputs * count], work.gradients[at:]
        at = work.places[layer]
        grad = work.gradients[at : at + outputs * count]
        _sum_rows(grad, outputs, count, grads[bias_at : bias_at + outputs])
        here = slice(weight_at, weight_at + outputs * inputs)
        product(False, True, inputs, outputs, count, given, grad, False, grads[here], work.products)
        if layer == 1 and layout[0, 0] == 0:
            return
        product(
            False, False, inputs, count, outputs, params[here], grad, False, to_input, work.products
        )
        for i in range(len(given)):
            to_input[i] = _ZERO if given[i] <= 0 else to_input[i]
    channels, height, width, weight_at, bias_at = layout[0]
    inputs, places = channels * KERNEL**2, (height - EDGE) * (width - EDGE) * count
    _sum_rows(work.gradients, CHANNELS, places, grads[bias_at : bias_at + CHANNELS])
    weight = grads[weight_at : weight_at + CHANNELS * inputs]
    _row_products(work.gradients, work.patches, CHANNELS, inputs, places, weight)


@kernel
def _sum_rows(values, rows, length, sums):  # pragma: no cover
    for row in range(rows):
        total = _ZERO
        for value in values[row * length : (row + 1) * length]:
            total += value
        sums[row] = total


@kernel
def _row_products(a, b, rows, columns, length, result):  # pragma: no cover
    """Multiply each long row of one matrix with each of another: four by two, from the caches.

    BLAS takes four times as long for this shape. ``rows`` is a multiple of four.
    """
    result[:] = _ZERO
    for start in range(0, length, _BLOCK):
        stop = min(start + _BLOCK, length)
        for column in range(0, columns, 2):
            other = min(column + 1, columns - 1)
            b0, b1 = (
                b[column * length + start : column * length + stop],
                b[other * length + start :],
            )
            for row in range(0, rows, 4):
                a0, a1 = a[row * length + start :], a[(row + 1) * length + start :]
                a2, a3 = a[(row + 2) * length + start :], a[(row + 3) * length + start :]
                s00 = s10 = s20 = s30 = s01 = s11 = s21 = s31 = _ZERO
                for i in range(len(b0)):
                    s00 += a0[i] * b0[i]
                    s10 += a1[i] * b0[i]
                    s20 += a2[i] * b0[i]
                    s30 += a3[i] * b0[i]
                    s01 += a0[i] * b1[i]
                    s11 += a1[i] * b1[i]
                    s21 += a2[i] * b1[i]
                    s31 += a3[i] * b1[i]
                for k, pair in enumerate(((s00, s01), (s10, s11), (s20, s21), (s30, s31))):
                    result[(row + k) * columns + column] += pair[0]
                    if other > column:
                        result[(row + k) * columns + other] += pair[1]


@kernel
def values_of(obs, params, layout, work):  # pragma: no cover
    """Return the action values of some observations, a column for each, as a view."""
    embed(obs, layout, work, 0, len(obs))
    forward(params, layout, work, len(obs))
    at, actions = work.places[-1], layout[-1, 1]
    return work.values[at : at + actions * len(obs)].reshape(actions, len(obs))


@kernel
def best_action(obs, params, layout, work):  # pragma: no cover
    """Return the best action for a single observation."""
    return np.argmax(values_of(obs, params, layout, work))


@kernel
def scaled_images(frames, scale):  # pragma: no cover
    """Convert stacks of four frames of bytes to floats with the channels last, in one pass."""
    count, _, height, width = frames.shape
    result = np.empty((count, height * width, 4), np.float32)
    for state in range(count):
        first, second = frames[state, 0].reshape(-1), frames[state, 1].reshape(-1)
        third, fourth = frames[state, 2].reshape(-1), frames[state, 3].reshape(-1)
        pixels = result[state]
        for pixel in range(height * width):
            pixels[pixel, 0] = first[pixel] * scale
            pixels[pixel, 1] = second[pixel] * scale
            pixels[pixel, 2] = third[pixel] * scale
            pixels[pixel, 3] = fourth[pixel] * scale
    return result.reshape(count, height, width, 4)
