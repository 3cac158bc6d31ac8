"""Whole updates of small networks, compiled by numba: all epochs, clipping and the optimizer.

The parameters of a network, their gradients and the optimizer's state are flat arrays, described by
the ``layout`` of :mod:`medqn_tianshou.fast.kernels`.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import numpy as np

from medqn_tianshou.fast.kernels import backward, embed, forward, values_of
from medqn_tianshou.files.compiling import exact, kernel

ADAM, RMSPROP, CENTERED_RMSPROP = range(3)
LOSS_TERMS = 4
"""What an update writes: sums of TD loss, total loss, consolidation loss and drift."""
_ZERO = np.float32(0)
_NORMAL = np.finfo(np.float32).tiny
"""The smallest number with which a CPU computes at full speed."""


@kernel
def td_gradient(q, act, returns, huber, grad, errors):  # pragma: no cover
    """Write the gradient of the TD loss and the TD errors; return the loss."""
    loss, count = 0.0, len(returns)
    grad[:] = _ZERO
    for i in range(count):
        action = act[i]
        error = q[i, action] - returns[i]
        errors[i] = -error
        if not huber:
            loss += error * error
            grad[i, action] = 2 * error / count
        elif abs(error) > 1:
            loss += abs(error) - 0.5
            grad[i, action] = np.sign(error) / count
        else:
            loss += 0.5 * error * error
            grad[i, action] = error / count
    return loss / count


@kernel
def consolidation_gradient(q, target_q, coef, per_action, grad):  # pragma: no cover
    """Write the gradient of lambda times the consolidation loss; return loss and relative drift."""
    count, actions = q.shape
    share = count * actions if per_action else count
    loss, mean, spread = 0.0, 0.0, 0.0
    for i in range(count):
        for action in range(actions):
            distance = q[i, action] - target_q[i, action]
            loss += distance * distance
            mean += target_q[i, action]
            grad[i, action] = coef * 2 * distance / share
    mean /= target_q.size
    for value in target_q.flat:
        spread += (value - mean) ** 2
    drift = np.sqrt(loss / q.size) / (np.sqrt(spread / q.size) + 1e-8)
    return loss / share, drift


@kernel
def clip(grads, max_norm):  # pragma: no cover
    """Scale the gradient to a norm of at most ``max_norm``, as torch does."""
    total = 0.0
    for i in range(len(grads)):
        total += grads[i] * grads[i]
    scale = np.float32(max_norm / (np.sqrt(total) + 1e-6))
    if not scale >= 1:  # NaN propagates, as in torch
        for i in range(len(grads)):
            grads[i] *= scale


@kernel
def _normal(value):  # pragma: no cover
    """Return 0 for a subnormal number, to which the moments of an inactive unit decay.

    Operations on subnormal numbers are many times slower.
    """
    return _ZERO if abs(value) < _NORMAL else value


@kernel
def optimize(kind, params, grads, first, second, step, numbers):  # pragma: no cover
    """Take the step of an optimizer; ``numbers`` are its constants as torch names them."""
    if kind == ADAM:
        lr, beta1, beta2, eps = numbers
        rate = np.float32(lr / (1 - beta1**step))
        root = np.float32(np.sqrt(1 - beta2**step))
        keep, rest1, rest2 = np.float32(beta2), np.float32(1 - beta1), np.float32(1 - beta2)
        tiny = np.float32(eps)
        for i in range(len(params)):
            grad = grads[i]
            average = first[i] + rest1 * (grad - first[i])
            square = keep * second[i] + rest2 * grad * grad
            first[i], second[i] = _normal(average), _normal(square)
            params[i] -= rate * first[i] / (np.sqrt(second[i]) / root + tiny)
        return
    rate, keep = np.float32(numbers[0]), np.float32(numbers[1])
    rest, tiny = np.float32(1 - numbers[1]), np.float32(numbers[3])
    for i in range(len(params)):
        grad = grads[i]
        square = _normal(keep * second[i] + rest * grad * grad)
        second[i] = square
        if kind == CENTERED_RMSPROP:
            average = _normal(first[i] + rest * (grad - first[i]))
            first[i] = average
            square -= average * average
        params[i] -= rate * grad / (np.sqrt(square) + tiny)


@kernel
def update(  # pragma: no cover
    obs, act, rewards, factors, obs_next, states,  # the mini-batch; states of all epochs
    params, target, grads, first, second, layout, work,  # the networks and the optimizer
    epochs, step, gradient_step, sync_interval, double, huber, per_action, coef, max_norm, kind,
    numbers, errors, losses,
):  # fmt: skip
    """Take all gradient steps of a mini-batch; write sums of losses and drifts, and the TD errors.

    Return False, without any change, for an action that the network does not have.
    """
    count, actions = len(obs), layout[-1, 1]
    for action in act:
        if action < 0 or action >= actions:
            return False
    sampled = len(states) // epochs
    both = count + sampled
    returns = np.empty(count, np.float32)
    best = np.empty(count, np.int64)
    if double:
        q = values_of(obs_next, params, layout, work)
        for i in range(count):
            best[i] = np.argmax(q[i])
    q = values_of(obs_next, target, layout, work)
    for i in range(count):
        value = q[i, best[i]] if double else np.max(q[i])
        returns[i] = np.float32(np.float64(value) * factors[i] + rewards[i])
    target_q = np.empty((sampled, actions), np.float32)
    at = work.places[-1]
    q = work.values[at : at + actions * both].reshape(both, actions)
    grad = work.gradients[at : at + actions * both].reshape(both, actions)
    losses[:] = 0
    for epoch in range(epochs):
        if (gradient_step + epoch) % sync_interval == 0:
            target[:] = params
        if sampled:
            chosen = states[epoch * sampled : (epoch + 1) * sampled]
            target_q[:] = values_of(chosen, target, layout, work)
            embed(chosen, layout, work, count)
        embed(obs, layout, work, 0)
        forward(params, layout, work, both)
        td_loss = td_gradient(q[:count], act, returns, huber, grad[:count], errors)
        consolidation, drift = 0.0, 0.0
        if sampled:
            consolidation, drift = consolidation_gradient(
                q[count:], target_q, coef, per_action, grad[count:]
            )
        losses[0] += td_loss
        losses[1] += td_loss + coef * consolidation
        losses[2] += consolidation
        losses[3] += drift
        backward(params, grads, layout, work, both)
        if max_norm > 0:
            clip(grads, max_norm)
        optimize(kind, params, grads, first, second, step + epoch + 1, numbers)
    return True


@kernel
def update_stored(  # pragma: no cover
    obs, act, rewards, terminated, obs_next, index, gamma, *others
):
    """Take the steps of :func:`update` on 1-step transitions, read directly from the buffer."""
    factors = np.empty(len(index))
    for i in range(len(index)):
        factors[i] = 0.0 if terminated[index[i]] else gamma
    return update(obs[index], act[index], rewards[index], factors, obs_next[index], *others)


@exact
def between(shares, low, high, states):  # pragma: no cover
    """Write the states at some shares of the way between bounds, as ``StateBounds.sample`` does.

    Return False if a lower bound is above its upper bound.
    """
    for i in range(len(low)):
        if low[i] > high[i]:
            return False
        for state in range(len(states)):
            share = shares[state, i]
            value = (1.0 - share) * low[i] + share * high[i]
            states[state, i] = min(max(value, low[i]), high[i])
    return True
