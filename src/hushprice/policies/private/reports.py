"""What crosses the privacy boundary. The server of a private policy takes these types and no other."""

from __future__ import annotations

from dataclasses import dataclass

from hushprice.policies.base import Records, Reports
from hushprice.privacy.wire import Rows


@dataclass(frozen=True)
class PrivateReports(Reports):
    """Randomised reports, as a mechanism of ``hushprice.privacy`` makes them.

    Parameters
    ----------
    rows : ndarray of int64
        One report per row.
    stage : int
        ``Params.stage`` at the time of the quotes: the episode of a policy that starts afresh with each, or whatever
        its learner tells apart by it.
    """

    rows: Rows
    stage: int = 1


@dataclass(frozen=True)
class MixedReports(Reports):
    """Reports of a policy that leaves customers the choice.

    Parameters
    ----------
    private : PrivateReports
        Randomised reports of private customers.
    public : Records
        Raw records of the customers who agreed to send them.
    """

    private: PrivateReports
    public: Records
