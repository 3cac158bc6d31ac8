"""Loops for numba to compile: the passes of :mod:`medqn_tianshou.fast.compiled`."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np
from numba import njit

_ZERO = np.float32(0.0)
_compile = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})


@_compile
def dense_forward(values, weights, biases):  # pragma: no cover
    """Give the inputs of each linear layer, ReLU between them, and the output of the last."""
    kept = [values]
    for layer in range(len(weights)):
        inputs, bias = kept[layer], biases[layer]
        weight_IO = weights[layer].T.copy()  # so that the inmost loop runs along memory
        result = np.empty((len(inputs), len(bias)), np.float32)
        for row in range(len(inputs)):
            outputs = result[row]
            outputs[:] = bias
            for i in range(len(weight_IO)):
                value, weight_O = inputs[row, i], weight_IO[i]
                for o in range(len(outputs)):
                    outputs[o] += value * weight_O[o]
            if layer < len(weights) - 1:
                for o in range(len(outputs)):
                    # What is not a number stays so, as in torch.
                    outputs[o] = _ZERO if outputs[o] < 0 else outputs[o]
        kept.append(result)
    return kept


@_compile
def dense_backward(grad_BA, inputs, weights, to_input):  # pragma: no cover
    """Give the gradients of weight and bias for each layer, and that of the first input."""
    gradients = [(np.zeros_like(weight), np.zeros(len(weight), np.float32)) for weight in weights]
    grad_BO = grad_BA
    for layer in range(len(weights) - 1, -1, -1):
        values_BI, weight_OI = inputs[layer], weights[layer]
        grad_weight_OI, grad_bias_O = gradients[layer]
        grad_BI = np.zeros_like(values_BI)
        for row in range(len(grad_BO)):
            values_I, grad_I = values_BI[row], grad_BI[row]
            for o in range(len(weight_OI)):
                grad = grad_BO[row, o]
                grad_bias_O[o] += grad
                grad_weight_I, weight_I = grad_weight_OI[o], weight_OI[o]
                for i in range(len(values_I)):
                    grad_weight_I[i] += grad * values_I[i]
                if layer > 0 or to_input:
                    for i in range(len(values_I)):
                        grad_I[i] += grad * weight_I[i]
            if layer > 0:  # through the ReLU before this layer
                for i in range(len(values_I)):
                    grad_I[i] = grad_I[i] if values_I[i] > 0 else _ZERO
        grad_BO = grad_BI
    return gradients, grad_BO


@_compile
def patches(obs, kernel_height, kernel_width):  # pragma: no cover
    """Lay out what a convolution sees at each place of each state as a column of a matrix."""
    count, channels, height, width = obs.shape
    rows, columns = height - kernel_height + 1, width - kernel_width + 1
    result = np.empty((channels * kernel_height * kernel_width, count, rows, columns), np.float32)
    cell = 0
    for channel in range(channels):
        for ky in range(kernel_height):
            for kx in range(kernel_width):
                for state in range(count):
                    for y in range(rows):
                        seen, place = obs[state, channel, y + ky], result[cell, state, y]
                        for x in range(columns):
                            place[x] = seen[x + kx]
                cell += 1
    return result.reshape(cell, -1)


@_compile
def rectified_features(result_OP, bias_O, count):  # pragma: no cover
    """Add the bias, apply ReLU, and give a row of features for each state."""
    outputs, places = len(result_OP), result_OP.shape[1] // count
    features = np.empty((count, outputs * places), np.float32)
    for output in range(outputs):
        bias = bias_O[output]
        for state in range(count):
            values = result_OP[output, state * places : (state + 1) * places]
            row = features[state, output * places : (output + 1) * places]
            for place in range(places):
                value = values[place] + bias
                row[place] = _ZERO if value < 0 else value
    return features


@_compile
def place_gradients(grad_BF, features_BF, outputs):  # pragma: no cover
    """Undo :func:`rectified_features` for gradients; give those of results and bias."""
    count, places = len(grad_BF), grad_BF.shape[1] // outputs
    result_OP = np.empty((outputs, count * places), np.float32)
    bias_O = np.zeros(outputs, np.float32)
    for output in range(outputs):
        first = output * places
        total = _ZERO
        for state in range(count):
            values, grads = features_BF[state], grad_BF[state]
            row = result_OP[output, state * places : (state + 1) * places]
            for place in range(places):
                row[place] = grads[first + place] if values[first + place] > 0 else _ZERO
            for place in range(places):
                total += row[place]
        bias_O[output] = total
    return result_OP, bias_O


@_compile
def loss_gradient(  # pragma: no cover
    q_BA, act_B, returns_B, target_q_SA, coef, huber, per_action
):
    """Give TD loss, consolidation loss, TD errors, and the gradient of the whole loss.

    The first rows of ``q_BA`` are those of the TD batch, the others those of the states.
    """
    grad_BA = np.zeros_like(q_BA)
    error_B = np.empty_like(returns_B)
    batch_size, action_count = len(returns_B), q_BA.shape[1]
    td_loss = 0.0
    for row in range(batch_size):
        action = act_B[row]
        error = q_BA[row, action] - returns_B[row]
        error_B[row] = -error
        if not huber:
            td_loss += error * error
            grad_BA[row, action] = 2 * error / batch_size
        elif abs(error) > 1:
            td_loss += abs(error) - 0.5
            grad_BA[row, action] = np.sign(error) / batch_size
        else:
            td_loss += 0.5 * error * error
            grad_BA[row, action] = error / batch_size
    td_loss /= batch_size
    consolidation_loss = 0.0
    states = len(target_q_SA)
    share = states * action_count if per_action else states
    for row in range(states):
        for action in range(action_count):
            distance = q_BA[batch_size + row, action] - target_q_SA[row, action]
            consolidation_loss += distance * distance
            grad_BA[batch_size + row, action] = coef * 2 * distance / share
    if states:
        consolidation_loss /= share
    return td_loss, consolidation_loss, error_B, grad_BA


@_compile
def scaled_images(frames, scale):  # pragma: no cover
    """Turn stacks of four frames of bytes into floats with the channels last, in one pass."""
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


@_compile
def dense_values(obs_BI, weights, biases):  # pragma: no cover
    """Give the outputs of linear layers for a few states, without preparing anything."""
    result = np.empty((len(obs_BI), len(biases[-1])), np.float32)
    for state in range(len(obs_BI)):
        result[state] = _dense_values(obs_BI[state], weights, biases)
    return result


@_compile
def _dense_values(values, weights, biases):  # pragma: no cover
    last = len(weights) - 1
    for layer in range(len(weights)):
        weight, bias = weights[layer], biases[layer]
        result = np.empty(len(bias), np.float32)
        for row in range(len(bias)):
            total = _ZERO
            for column in range(weight.shape[1]):
                total += weight[row, column] * values[column]
            total += bias[row]
            result[row] = _ZERO if layer < last and total < 0 else total
        values = result
    return values


@_compile
def grid_values(obs, kernel, kernel_bias, weights, biases):  # pragma: no cover
    """Give the outputs of a convolution and linear layers for a few states, mostly zeros."""
    outputs, channels, kernel_height, kernel_width = kernel.shape
    height, width = obs.shape[2] - kernel_height + 1, obs.shape[3] - kernel_width + 1
    result = np.empty((len(obs), len(biases[-1])), np.float32)
    image = np.empty((outputs, height, width), np.float32)
    for state in range(len(obs)):
        for output in range(outputs):
            image[output] = kernel_bias[output]
        for channel in range(channels):
            for y in range(obs.shape[2]):
                for x in range(obs.shape[3]):
                    value = np.float32(obs[state, channel, y, x])
                    if value == 0:  # most cells of a grid are empty
                        continue
                    for ky in range(max(0, y - height + 1), min(kernel_height, y + 1)):
                        for kx in range(max(0, x - width + 1), min(kernel_width, x + 1)):
                            for output in range(outputs):
                                weight = kernel[output, channel, ky, kx]
                                image[output, y - ky, x - kx] += value * weight
        for output in range(outputs):
            for y in range(height):
                for x in range(width):
                    if image[output, y, x] < 0:
                        image[output, y, x] = _ZERO
        result[state] = _dense_values(image.reshape(-1), weights, biases)
    return result


@_compile
def clip(gradients, max_norm):  # pragma: no cover
    """Scale gradients to a norm of at most ``max_norm``, all together."""
    total = 0.0
    for gradient in gradients:
        for i in range(gradient.size):
            total += gradient[i] * gradient[i]
    scale = np.float32(max_norm / (np.sqrt(total) + 1e-6))
    if not scale >= 1:  # what is not a number spreads, as in torch
        for gradient in gradients:
            for i in range(gradient.size):
                gradient[i] *= scale


@_compile
def rmsprop(parameters, gradients, squares, lr, alpha, rest, eps):  # pragma: no cover
    """Take a step of RMSprop."""
    for layer in range(len(parameters)):
        parameter, gradient, square = parameters[layer], gradients[layer], squares[layer]
        for i in range(parameter.size):
            grad = gradient[i]
            square[i] = square[i] * alpha + grad * grad * rest
            parameter[i] -= lr * grad / (np.sqrt(square[i]) + eps)


@_compile
def centered_rmsprop(  # pragma: no cover
    parameters, gradients, squares, averages, lr, alpha, rest, eps
):
    """Take a step of centered RMSprop."""
    for layer in range(len(parameters)):
        parameter, gradient = parameters[layer], gradients[layer]
        square, average = squares[layer], averages[layer]
        for i in range(parameter.size):
            grad = gradient[i]
            square[i] = square[i] * alpha + grad * grad * rest
            average[i] += rest * (grad - average[i])
            deviation = np.sqrt(square[i] - average[i] * average[i])
            parameter[i] -= lr * grad / (deviation + eps)
