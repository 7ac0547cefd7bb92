"""Logs of past quotes: reading them, encoding them, and demand models fitted to them."""

from hushprice.fitting.diagnosis.findings import Finding
from hushprice.fitting.diagnosis.report import (
    Coefficient,
    Constancy,
    Curve,
    HeldOut,
    Report,
    Score,
    Segment,
    Side,
    Tenth,
)
from hushprice.fitting.model import DemandModel, fit
from hushprice.fitting.model_fields import ModelFileError
from hushprice.fitting.passes.design import Design, Discount, Rows, held_out
from hushprice.fitting.passes.stream import StreamedFit, stream_fit
from hushprice.fitting.passes.survey import Columns, Outcomes, Survey, survey
from hushprice.fitting.reading.encoding import Category, Encoding, Number
from hushprice.fitting.reading.source import Batch, Log, Source

__all__ = [
    "Batch",
    "Category",
    "Coefficient",
    "Columns",
    "Constancy",
    "Curve",
    "DemandModel",
    "Design",
    "Discount",
    "Encoding",
    "Finding",
    "HeldOut",
    "Log",
    "ModelFileError",
    "Number",
    "Outcomes",
    "Report",
    "Rows",
    "Score",
    "Segment",
    "Side",
    "Source",
    "StreamedFit",
    "Survey",
    "Tenth",
    "fit",
    "held_out",
    "stream_fit",
    "survey",
]
