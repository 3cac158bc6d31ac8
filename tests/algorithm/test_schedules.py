import pytest

from medqn_tianshou import ConstantSchedule, LinearSchedule


def test_linear_schedule_goes_through_its_ends_and_stays_there():
    schedule = LinearSchedule(start=0.01, end=4.0, duration_env_steps=1000)
    assert schedule(0) == 0.01
    assert schedule(500) == pytest.approx(2.005)
    assert schedule(1000) == 4.0
    assert schedule(10**9) == 4.0


def test_linear_schedule_also_falls():
    epsilon = LinearSchedule(start=1.0, end=0.05, duration_env_steps=100)
    assert epsilon(50) == pytest.approx(0.525)


def test_constant_schedule_is_constant():
    assert {ConstantSchedule(2.0)(step) for step in (0, 5, 10**9)} == {2.0}


def test_repr_gives_the_schedule_back():
    for schedule in (
        ConstantSchedule(2.0),
        LinearSchedule(start=0.01, end=4.0, duration_env_steps=7),
    ):
        assert eval(repr(schedule)) == schedule  # noqa: S307


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: LinearSchedule(start=0, end=1, duration_env_steps=0), "duration_env_steps=0"),
        (lambda: LinearSchedule(start=float("nan"), end=1, duration_env_steps=5), "start=nan"),
        (lambda: LinearSchedule(start=0, end=float("inf"), duration_env_steps=5), "end=inf"),
        (lambda: ConstantSchedule(float("inf")), "value=inf"),
    ],
)
def test_bad_values_are_named(build, name):
    with pytest.raises(ValueError, match=name):
        build()
