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
from medqn_tianshou.fast.sparse import (
    apply_to_active,
    are_mostly_inactive,
    convolve,
    differentiate_active,
    differentiate_convolution,
    find_active,
    sum_rows,
)
from medqn_tianshou.files.compiling import kernel

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
    """Where in a tile each feature is. See :func:`~.sparse.convolve`."""
    found: Any
    """The active features of a state."""
    ends: Any
    """Where the active values of each feature end in the next two."""
    owners: Any
    """The state of each."""
    shares: Any
    """The value of each."""
    products: Any


@kernel
def embed(obs, layout, work, first):  # pragma: no cover
    """Prepare the pass of some states, of which these, a row each, start at ``first``."""
    if layout[0, 0] > 0:
        for state in range(len(obs)):
            find_active(obs[state], work.cells[first + state], work.active[first + state])
        return
    width = obs.shape[1]
    for state in range(len(obs)):
        row, seen = work.values[(first + state) * width :], obs[state]
        for i in range(width):
            row[i] = seen[i]


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
        convolve(params, layout, work, count)
    last = len(layout) - 1
    for layer in range(1, last + 1):
        inputs, outputs, weight_at, bias_at, _ = layout[layer]
        at = work.places[layer - 1]
        given = work.values[at : at + inputs * count]
        at = work.places[layer]
        result = work.values[at : at + outputs * count]
        weight = params[weight_at : weight_at + outputs * inputs]
        # For a single state, or mostly inactive features, BLAS takes several times as long.
        if count == 1 or (layer == 1 and layout[0, 0] > 0 and are_mostly_inactive(given)):
            for i in range(count):
                row = given[i * inputs : (i + 1) * inputs]
                apply_to_active(weight, row, result[i * outputs : (i + 1) * outputs])
        else:
            product(False, False, count, outputs, inputs, given, weight, result, work.products)
        _add_biases(result, params[bias_at : bias_at + outputs], layer < last)


@kernel
def backward(params, grads, layout, work, count):  # pragma: no cover
    """Write the gradients of all parameters, after :func:`forward` of the same states."""
    for layer in range(len(layout) - 1, 0, -1):
        inputs, outputs, weight_at, bias_at, _ = layout[layer]
        at = work.places[layer - 1]
        given, to_input = work.values[at : at + inputs * count], work.gradients[at:]
        at = work.places[layer]
        grad = work.gradients[at : at + outputs * count]
        sum_rows(grad, grads[bias_at : bias_at + outputs])
        here = slice(weight_at, weight_at + outputs * inputs)
        if layer == 1 and layout[0, 0] > 0:
            differentiate_active(params[here], given, grad, grads[here], to_input, work)
            differentiate_convolution(grads, layout, work, count)
            return
        product(True, False, inputs, outputs, count, given, grad, grads[here], work.products)
        if layer == 1:
            return
        product(False, True, count, inputs, outputs, grad, params[here], to_input, work.products)
        for i in range(len(given)):
            to_input[i] = _ZERO if given[i] <= 0 else to_input[i]


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
