"""Write the test vectors from the compiled kernels: ``python -m protocol.make_vectors``.

``vectors/privacy.json`` has mechanisms and their parts, ``vectors/device.json`` all that a device computes. Words and
seeds are 16 hexadecimal digits; floating-point numbers are written so that reading them gives the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from protocol.device_vectors import device_vectors, flat
from protocol.privacy_vectors import privacy_vectors

FOLDER = Path(__file__).parent / "vectors"
MAKERS: dict[str, Callable[[], str]] = {
    "privacy.json": lambda: json.dumps(privacy_vectors(), indent=1) + "\n",
    "device.json": lambda: flat(device_vectors()) + "\n",
}


def main() -> None:
    """Write all files of the folder."""
    for name, make in MAKERS.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
