"""Types in annotations of TorchScript, under PyTorch's import path."""

from __future__ import annotations

from typing import Any
from typing import Dict as Dict  # noqa: UP035
from typing import List as List  # noqa: UP035
from typing import Optional as Optional
from typing import Tuple as Tuple  # noqa: UP035


class _BroadcastingList:
    """`BroadcastingList2[int]`: a list, for whose length scripts also accept one number."""

    def __getitem__(self, types: Any) -> None:
        return None


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _BroadcastingList()
