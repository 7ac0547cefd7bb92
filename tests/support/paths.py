"""Where things are that tests read: this repository and the data beside it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KARLAN_ZINMAN = ROOT.parent / "shared" / "data" / "karlan-zinman.csv.gz"  # a real price experiment
