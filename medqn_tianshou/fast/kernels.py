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
_SPREAD = KERNEL * CHANNELS
# Not "fast": NaN must remain NaN.
kernel = compiled(fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy")
exact = compiled(error_model="numpy")
"""For results that must be rounded as numpy rounds them."""
_ZERO = np.float32(0)


class Work(NamedTuple):
    """Memory for the passes over some states of a network: every array has a row for each."""

    values: Any
    """The inputs of each linear layer, and the output of the last."""
    gradients: Any
    """Of the values."""
    places: Any
    """Where each of these starts."""
    cells: Any
    """For each state of a grid, the values of the cells that are not 0."""
    active: Any
    """For each state of a grid, the number of these cells, and then which they are."""
    reach: Any
    """Where in a tile the lowest row of a cell's 3 x 3 places starts, and where its weights do."""
    order: Any
    """Where in a tile each feature is. See :func:`_convolve`."""
    products: Any


@kernel
def embed(obs, layout, work, first):  # pragma: no cover
    """Prepare the pass of some states, of which these, a row each, start at ``first``."""
    if layout[0, 0] > 0:
        for state in range(len(obs)):
            _find_active(obs[state], work.cells[first + state], work.active[first + state])
        return
    width = obs.shape[1]
    for state in range(len(obs)):
        row, seen = work.values[(first + state) * width :], obs[state]
        for i in range(width):
            row[i] = seen[i]


@kernel
def _find_active(seen, values, active):  # pragma: no cover
    """List the cells that are not 0: few, so that whole words of memory are 0."""
    step = 8 // seen.itemsize
    words = seen[: len(seen) // step * step].view(np.uint64)
    found = start = 0
    for word in range(len(words)):
        if words[word] != 0:
            found = _append_active(seen, start, start + step, values, active, found)
        start += step
    active[0] = _append_active(seen, start, len(seen), values, active, found)


@kernel
def _append_active(seen, start, stop, values, active, found):  # pragma: no cover
    for cell in range(start, stop):  # without branches, which would be hard to predict
        values[found], active[found + 1] = seen[cell], cell
        found += seen[cell] != 0
    return found


@kernel
def _convolve(params, layout, work, count):  # pragma: no cover
    """Write the features of the embedded states: ReLU of the convolution.

    Only active cells contribute, each to the up to 3 x 3 places that see it. A tile has the outputs
    of a place next to each other, and a margin, so that every cell has 3 x 3 places.
    """
    channels, _, width, weight_at, bias_at = layout[0]
    weight = params[weight_at : weight_at + CHANNELS * channels * KERNEL**2]
    spread = np.empty(len(weight), np.float32)
    _exchange(weight, spread, channels, True)
    line = (width + EDGE) * CHANNELS
    empty = np.empty(tile_size(layout), np.float32)
    for i in range(len(empty)):
        empty[i] = params[bias_at + i % CHANNELS]
    tile, features = np.empty_like(empty), len(work.order)
    for state in range(count):
        for i in range(len(tile)):  # numba's assignment of an array takes ten times as long
            tile[i] = empty[i]
        active, values = work.active[state], work.cells[state]
        for i in range(active[0]):
            (place, start), value = work.reach[active[i + 1]], values[i]
            for _ in range(KERNEL):
                reached, own = tile[place : place + _SPREAD], spread[start : start + _SPREAD]
                for k in range(_SPREAD):
                    reached[k] += value * own[k]
                place, start = place - line, start + _SPREAD
        row = work.values[state * features : (state + 1) * features]
        for i in range(len(tile)):  # a loop of its own, so that it compiles without branches
            tile[i] = _ZERO if tile[i] < 0 else tile[i]
        for i in range(features):
            row[i] = tile[work.order[i]]


@kernel
def _differentiate_convolution(grads, layout, work, count):  # pragma: no cover
    """Write the gradients of the convolution's parameters from those of its features."""
    channels, _, width, weight_at, bias_at = layout[0]
    line, features = (width + EDGE) * CHANNELS, len(work.order)
    tile = np.zeros(tile_size(layout), np.float32)
    sums = np.empty(features, np.float32)
    _sum_rows(work.gradients[: count * features], sums)
    biases = grads[bias_at : bias_at + CHANNELS]
    biases[:] = _ZERO
    for i in range(features):
        biases[work.order[i] % CHANNELS] += sums[i]
    weight = grads[weight_at : weight_at + CHANNELS * channels * KERNEL**2]
    spread = np.zeros(len(weight), np.float32)
    for state in range(count):
        row = work.gradients[state * features : (state + 1) * features]
        for i in range(features):
            tile[work.order[i]] = row[i]
        active, values = work.active[state], work.cells[state]
        for i in range(active[0]):
            (place, start), value = work.reach[active[i + 1]], values[i]
            for _ in range(KERNEL):
                reached, own = tile[place : place + _SPREAD], spread[start : start + _SPREAD]
                for k in range(_SPREAD):
                    own[k] += value * reached[k]
                place, start = place - line, start + _SPREAD
    _exchange(weight, spread, channels, False)


@kernel
def tile_size(layout):  # pragma: no cover
    """Return how many outputs a tile has, with its margin."""
    return (layout[0, 1] + EDGE) * (layout[0, 2] + EDGE) * CHANNELS


@kernel
def _exchange(weight, spread, channels, spreading):  # pragma: no cover
    """Copy the convolution's weights to, or from, an order for tiles.

    torch's order is output, input channel, row, column; in a tile, the columns are reversed and the
    outputs last.
    """
    inputs = channels * KERNEL**2
    for output in range(CHANNELS):
        for i in range(inputs):
            mirrored = i + EDGE - 2 * (i % KERNEL)
            if spreading:
                spread[mirrored * CHANNELS + output] = weight[output * inputs + i]
            else:
                weight[output * inputs + i] = spread[mirrored * CHANNELS + output]


@kernel
def _add_biases(values, biases, rectify):  # pragma: no cover
    """Add the biases to each row, and apply ReLU."""
    width = len(biases)
    for start in range(0, len(values), width):
        row = values[start : start + width]
        for i in range(width):
            value = row[i] + biases[i]
            row[i] = _ZERO if rectify and value < 0 else value


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
            product(False, False, count, outputs, inputs, given, weight, result, work.products)
        _add_biases(result, params[bias_at : bias_at + outputs], layer < last)


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
        _sum_rows(grad, grads[bias_at : bias_at + outputs])
        here = slice(weight_at, weight_at + outputs * inputs)
        product(True, False, inputs, outputs, count, given, grad, grads[here], work.products)
        if layer == 1 and layout[0, 0] == 0:
            return
        product(False, True, count, inputs, outputs, grad, params[here], to_input, work.products)
        for i in range(len(given)):
            to_input[i] = _ZERO if given[i] <= 0 else to_input[i]
    _differentiate_convolution(grads, layout, work, count)


@kernel
def _sum_rows(values, sums):  # pragma: no cover
    width = len(sums)
    sums[:] = _ZERO
    for start in range(0, len(values), width):
        row = values[start : start + width]
        for i in range(width):
            sums[i] += row[i]


@kernel
def values_of(obs, params, layout, work):  # pragma: no cover
    """Return the action values of some observations, a row for each, as a view."""
    embed(obs, layout, work, 0)
    forward(params, layout, work, len(obs))
    at, actions = work.places[-1], layout[-1, 1]
    return work.values[at : at + actions * len(obs)].reshape(len(obs), actions)


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
