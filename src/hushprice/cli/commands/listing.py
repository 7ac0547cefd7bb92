"""``hushprice list``: what there is, and what each takes."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hushprice import markets, policies, privacy
from hushprice.cli.options import Load
from hushprice.errors import unknown
from hushprice.studies.spec_strings import load_policies, options_of


def list_command(
    name: Annotated[
        str | None, typer.Argument(help="A policy, market or mechanism, to read more of it.", show_default=False)
    ] = None,
    load: Load = None,
) -> None:
    """Name the policies, markets and mechanisms there are, or tell more of one: what it does and takes."""
    console = Console()
    load_policies(load)
    others: tuple[Mapping[str, Any], ...] = (markets.REGISTRY, privacy.REGISTRY)
    for registry in others:
        if name is not None and name in registry:
            console.print(_description(name, registry[name]), highlight=False)
            if registry is privacy.REGISTRY:
                takes = [f.name for f in dataclasses.fields(registry[name]) if f.init]
                console.print(f"  takes {', '.join(takes)}", highlight=False)
            else:
                console.print(f"  takes {', '.join(markets.options_of(registry[name]))}", highlight=False)
                console.print(f"  for demand that drifts: drift={' or '.join(markets.DRIFTS)}", highlight=False)
            return
    if name is not None:
        if name not in policies.REGISTRY:
            raise unknown("policy, market or mechanism", name, [one for _, names in _KINDS for one in names])
        cls = policies.get(name)
        console.print(_description(name, cls), highlight=False)
        if cls.use:
            console.print(f"Use: {escape(cls.use)}\n", highlight=False)
        if cls.private:
            for title, base in _PRIVATE.items():
                if base in cls.__mro__:
                    console.print(_description(title, base), highlight=False)
        defaults: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(cls)}
        for option in options_of(cls):
            missing = defaults.get(option) is dataclasses.MISSING
            notes = {
                "z_max": "set by the market unless given",
                "features": "set by the market unless given",
                "customers": "a sample of the market's where it has no public features",
                "prior": "log for what the market's log knows, or a file",
            }
            notes |= {"restart": "on-change to start again when demand has changed"} if cls.can_restart() else {}
            notes |= {"horizon": "set by --horizon"} if defaults.get("horizon") is dataclasses.MISSING else {}
            note = notes.get(option, "needed" if missing else f"default {defaults.get(option)}")
            console.print(f"  {option}: {note}", highlight=False)
        return
    table = Table(show_header=False, box=None)
    for kind, names in _KINDS:
        for i, (name, thing) in enumerate(names.items()):
            first = getattr(thing, "use", "") or (thing.__doc__ or "").strip().splitlines()[0]
            table.add_row("" if i else kind, f"[bold]{name}[/bold]", escape(first))
    console.print(table)
    console.print("More of one: hushprice list look-ahead. Which policy when: docs/choosing.md", highlight=False)


_KINDS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("policies", policies.REGISTRY),
    ("markets", markets.REGISTRY),
    ("mechanisms", privacy.REGISTRY),
)


_PRIVATE = {"All private policies": policies.PrivatePolicy, "Those that learn in a ball": policies.BallPolicy}


def _description(name: str, thing: Any) -> str:
    """The docstring of a policy or market, without its examples. Prose is wrapped by the screen, sections are not."""
    text = re.split(r"\n\n(?:Examples\n-|>>>)", inspect.getdoc(thing) or "")[0].replace("``", "")
    text = re.sub(r":[a-z]+:`~?([^`]+)`", r"\1", text)
    section = re.compile(r"^-+$", re.MULTILINE)
    parts = [part if section.search(part) else " ".join(part.splitlines()) for part in text.split("\n\n")]
    text = "\n\n".join(parts)
    return f"[bold]{name}[/bold]: {escape(text)}\n"
