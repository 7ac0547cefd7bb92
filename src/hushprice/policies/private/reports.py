"""The reports that cross the privacy boundary. The server of a private policy accepts no other type."""

from __future__ import annotations

from dataclasses import dataclass

from hushprice.policies.exchange import Records, Reports
from hushprice.privacy.wire import Rows


@dataclass(frozen=True)
class PrivateReports(Reports):
    """Randomised reports, as a mechanism of ``hushprice.privacy`` makes them.

    Parameters
    ----------
    rows : ndarray of int64
        One report per row.
    stage : int
        ``Params.stage`` at the time of the quotes: the episode of a policy that restarts with each, or another number
        by which its learner distinguishes reports.
    """

    rows: Rows
    stage: int = 1


@dataclass(frozen=True)
class MixedReports(Reports):
    """Reports of a policy whose customers choose to be public or private.

    Parameters
    ----------
    private : PrivateReports
        Randomised reports of private customers.
    public : Records
        Raw records of the customers who agreed to send them.
    """

    private: PrivateReports
    public: Records
