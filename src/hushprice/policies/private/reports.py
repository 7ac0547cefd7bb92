"""What crosses the privacy boundary. The server of a private policy takes these types and no other."""

from __future__ import annotations

from dataclasses import dataclass

from hushprice.policies.base import Records, Reports
from hushprice.privacy.wire import Rows


@dataclass(frozen=True)
class PrivateReports(Reports):
    """Randomised reports, one a row, as a mechanism of ``hushprice.privacy`` makes them."""

    rows: Rows
    stage: int = 1  # the episode they are for, where a policy starts afresh with each


@dataclass(frozen=True)
class MixedReports(Reports):
    """Randomised reports of the private customers, raw records of those who agreed to send them."""

    private: PrivateReports
    public: Records
