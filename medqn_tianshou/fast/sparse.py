"""Loops over what is not 0: few cells of MinAtar's frames, and few features of its convolution.

A cell or an input of a layer is active if it is not 0. About half of the features are in a new
network, and a tenth in a trained one of MeDQN(U). Weights of inputs that are 0 in the whole batch
get the gradient 0, even if the loss, and so torch's gradient, is not a number.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import numpy as np

from medqn_tianshou.files.compiling import kernel

CHANNELS, KERNEL = 16, 3
"""Of MinAtar's convolution."""
EDGE = KERNEL - 1
_SPREAD = KERNEL * CHANNELS
_ZERO = np.float32(0)


@kernel
def find_active(seen, values, active):  # pragma: no cover
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
def convolve(params, layout, work, count):  # pragma: no cover
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
def differentiate_convolution(grads, layout, work, count):  # pragma: no cover
    """Write the gradients of the convolution's parameters from those of its features."""
    channels, _, width, weight_at, bias_at = layout[0]
    line, features = (width + EDGE) * CHANNELS, len(work.order)
    tile = np.zeros(tile_size(layout), np.float32)
    sums = np.empty(features, np.float32)
    sum_rows(work.gradients[: count * features], sums)
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
def are_mostly_inactive(values):  # pragma: no cover
    """Whether less than half are active: then :func:`apply_to_active` is faster than BLAS."""
    active = 0
    for i in range(len(values)):
        active += values[i] != 0
    return 2 * active < len(values)


@kernel
def apply_to_active(weight, given, result):  # pragma: no cover
    """Multiply the inputs of a state with a layer's weights, four active inputs at a time."""
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
def sum_rows(values, sums):  # pragma: no cover
    """Add up the rows."""
    width = len(sums)
    sums[:] = _ZERO
    for start in range(0, len(values), width):
        row = values[start : start + width]
        for i in range(width):
            sums[i] += row[i]


@kernel
def _sort_active(given, count, work):  # pragma: no cover
    """List the active inputs of some states by input: their values, states, and where each ends."""
    ends, states, values, found = work.ends, work.owners, work.shares, work.found
    inputs = len(ends)
    ends[:] = 0
    for state in range(count):
        row = given[state * inputs : (state + 1) * inputs]
        for i in range(inputs):
            ends[i] += row[i] != 0
    total = 0
    for i in range(inputs):  # where each starts; filling the list moves it to where it ends
        here = ends[i]
        ends[i] = total
        total += here
    for state in range(count):
        row = given[state * inputs : (state + 1) * inputs]
        active = 0
        for i in range(inputs):  # without branches
            found[active] = i
            active += row[i] != 0
        for k in range(active):
            i = found[k]
            at = ends[i]
            states[at], values[at], ends[i] = state, row[i], at + 1


@kernel
def differentiate_active(weight, given, grad, to_weight, to_input, work):  # pragma: no cover
    """Write the gradients of a layer's weights, and of its active inputs; other inputs get 0.

    The states of an input are taken four at a time.
    """
    inputs = len(work.ends)
    count = len(given) // inputs
    outputs = len(grad) // count
    _sort_active(given, count, work)
    states, values = work.owners, work.shares
    for i in range(len(given)):
        to_input[i] = _ZERO
    at = 0
    for i in range(inputs):
        row, result = weight[i * outputs : (i + 1) * outputs], to_weight[i * outputs :]
        for out in range(outputs):
            result[out] = _ZERO
        for k in range(at, work.ends[i], 4):
            left = work.ends[i] - k
            a = states[k]
            b = states[k + 1] if left > 1 else a
            c = states[k + 2] if left > 2 else a
            d = states[k + 3] if left > 3 else a
            va = values[k]
            vb = values[k + 1] if left > 1 else _ZERO
            vc = values[k + 2] if left > 2 else _ZERO
            vd = values[k + 3] if left > 3 else _ZERO
            row_a, row_b = grad[a * outputs : (a + 1) * outputs], grad[b * outputs :]
            row_c, row_d = grad[c * outputs :], grad[d * outputs :]
            to_a = to_b = to_c = to_d = _ZERO
            for out in range(outputs):
                own = row[out]
                ga, gb, gc, gd = row_a[out], row_b[out], row_c[out], row_d[out]
                result[out] += ga * va + gb * vb + (gc * vc + gd * vd)
                to_a, to_b, to_c, to_d = (
                    to_a + own * ga,
                    to_b + own * gb,
                    to_c + own * gc,
                    to_d + own * gd,
                )
            to_input[d * inputs + i], to_input[c * inputs + i] = to_d, to_c
            to_input[b * inputs + i], to_input[a * inputs + i] = to_b, to_a
        at = work.ends[i]
