"""The paper, reproduced: its figures and tables as data, each published number with ours."""

from hushprice.paper.items import SCALES, Item, Made, Paper
from hushprice.paper.report import Report, report
from hushprice.paper.verdicts import Verdict

__all__ = ["SCALES", "Item", "Made", "Paper", "Report", "Verdict", "report"]
