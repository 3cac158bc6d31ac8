"""The one error for a setting or an option that cannot be used, and the words of others."""


class ConfigError(ValueError):
    """A bad value of a setting or an option of a run.

    :param setting: its name, e.g. ``"buffer_size"``.
    :param value: the bad value.
    :param remedy: what is wrong with the value, and what to do instead.
    """

    def __init__(self, setting: str, value: object, remedy: str) -> None:
        super().__init__(setting, value, remedy)
        self.setting = setting
        self.value = value
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.setting}={self.value!r} {self.remedy}"


def reason_of(error: BaseException) -> str:
    """Return the first line of what an error says, or its kind."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
