"""The names of the demand families in the help of commands; apart from other options, which need no Numba."""

from __future__ import annotations

from typing import Annotated

import typer

from hushprice.demand import FAMILIES

FAMILY_NAMES = ", ".join(FAMILIES)
FamilyName = Annotated[
    str | None, typer.Option("--family", help=f"True demand: {FAMILY_NAMES}.", show_default="the market's")
]
