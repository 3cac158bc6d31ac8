"""TensorBoard's writer, with the scalars of a step in one event."""

import time
from collections.abc import Callable
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter


class EventWriter(SummaryWriter):
    """TensorBoard's writer, which passes each scalar on, and writes those of a step together.

    An event costs a checksum, computed in Python, and wakes the thread that writes the file. The
    scalars of a step are written when the next step begins, or at a flush.

    :param folder: for the event file.
    :param mirror: called with the tag and the value of each scalar.
    """

    def __init__(self, folder: str, mirror: Callable[[str, float], None]) -> None:
        super().__init__(folder)
        self._mirror = mirror
        self._values: list[Any] = []
        self._step: int | None = None
        self._time = 0.0

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int | None = None, *_: Any, **options: Any
    ) -> None:
        """Add a scalar to the event of its step, and pass it on."""
        if self._values and global_step != self._step:
            self._write()
        if not self._values:
            self._step, self._time = global_step, time.time()
        value = float(scalar_value)
        self._values.append(Summary.Value(tag=tag, simple_value=value))
        self._mirror(tag, value)

    def flush(self) -> None:
        """Write all events to the file."""
        self._write()
        super().flush()

    def close(self) -> None:
        """Write all events and close the file."""
        self._write()
        super().close()

    def _write(self) -> None:
        if self._values:
            file_writer: Any = self.file_writer
            file_writer.add_summary(Summary(value=self._values), self._step, self._time)
            self._values = []
