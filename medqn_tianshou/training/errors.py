"""The error for an invalid setting or option, and one-line reasons."""


class ConfigError(ValueError):
    """A bad value of a setting or an option of a run.

    :param setting: its name, e.g. ``"buffer_size"``.
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
    """Return the first line of an error's text; its type if it has no text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0]
