"""Phases: the ways in which a device prices, and their properties."""

from __future__ import annotations

from enum import IntEnum

from hushprice.kernels import state as phases

_BOTH = "Earning and learning"


class Phase(IntEnum):
    """How the device prices. The value is the number that kernels take.

    Attributes
    ----------
    title, sentence : str
        Name and one-sentence description of the phase on the dashboard.
    draws : bool
        Whether a price takes one random number.
    certain : bool
        Whether equal contexts get equal prices under the same params. False for STAGES, which selects prices in order
        to learn from them.
    experiments : bool
        Whether prices are chosen in order to learn. PERTURB at level 0 is the exception, see ``Params.experiment``.

    Examples
    --------
    >>> Phase.GRID.title, Phase.GRID.draws, Phase.GRID.certain
    ('Trying prices', True, False)
    """

    title: str
    sentence: str
    draws: bool
    certain: bool
    experiments: bool

    def __new__(
        cls,
        value: int,
        title: str = "",
        sentence: str = "",
        *flags: str,
    ) -> Phase:
        phase = int.__new__(cls, value)
        phase._value_ = value
        phase.title, phase.sentence = title, sentence
        phase.draws, phase.certain, phase.experiments = ("draws" in flags, "certain" in flags, "experiments" in flags)
        return phase

    # uniform over the range of experiments
    EXPLORE = (
        phases.EXPLORE,
        "Trying prices",
        "Each customer gets a price drawn at random, to learn how demand depends on it.",
        "draws",
        "experiments",
    )
    # the greedy price p*(theta, z)
    EXPLOIT = (
        phases.EXPLOIT,
        "Using what was learned",
        "Each customer gets the price that should earn most from them.",
        "certain",
    )
    # the greedy price plus or minus a deviation
    PERTURB = (
        phases.PERTURB,
        _BOTH,
        "Each customer gets the best known price, moved a little up or down by chance.",
        "draws",
        "experiments",
    )
    # the same price for everyone
    FIXED = phases.FIXED, "One price", "Everyone gets the same price.", "certain"
    # uniform over equispaced prices
    GRID = (
        phases.GRID,
        "Trying prices",
        "Each customer gets one of a few prices at random, to learn how demand depends on it.",
        "draws",
        "experiments",
    )
    # the price of the largest upper confidence bound
    INDEX = (
        phases.INDEX,
        _BOTH,
        "Each customer gets the price that could plausibly earn most.",
        "certain",
        "experiments",
    )
    # the greedy price of a theta drawn around the estimate
    SAMPLE = (
        phases.SAMPLE,
        _BOTH,
        "Each customer gets the best price under one plausible guess of demand.",
        "experiments",
    )
    # the greedy price of the luckiest of several theta of the confidence set
    SET = (
        phases.SET,
        _BOTH,
        "Each customer gets the best price under the luckiest of several guesses.",
        "experiments",
    )
    # supCB's elimination of prices, stage by stage
    STAGES = (
        phases.STAGES,
        _BOTH,
        "Prices that cannot be the best are ruled out, one after the other.",
        "experiments",
    )
    # the price of most profit plus what its outcome teaches
    AHEAD = (
        phases.AHEAD,
        _BOTH,
        "Each customer gets the best known price, moved as far as what is learned from it is worth.",
        "draws",
        "experiments",
    )
    # the best price plus or minus a deviation, by a coin that only the device knows
    DITHER = (
        phases.DITHER,
        _BOTH,
        "Each customer gets the best known price, moved up or down by a coin, as far as what it teaches is worth.",
        "draws",
        "experiments",
    )
