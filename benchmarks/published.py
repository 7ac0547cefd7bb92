"""What the paper reports: unknown T = 490 000, market S1, 500 replications."""

HORIZON = 490_000
DIMS = (1, 4, 9, 16, 25)

# policy -> d -> (mean regret, sd of regret, seconds a run in the authors' code)
TABLE: dict[str, dict[int, tuple[float, float, float]]] = {
    "etc-doubling": {
        1: (1048.8, 478.9, 58.2),
        4: (1982.4, 436.4, 59.1),
        9: (2897.6, 411.0, 61.9),
        16: (3790.2, 399.9, 66.5),
        25: (4679.2, 381.5, 85.5),
    },
    "mle-cycle": {
        1: (1148.8, 451.6, 59.3),
        4: (2076.2, 471.9, 84.3),
        9: (3060.3, 436.1, 144.9),
        16: (4038.7, 444.2, 282.3),
        25: (5004.4, 425.8, 545.9),
    },
    "semi-myopic": {
        1: (1350.0, 639.6, 59.6),
        4: (2772.6, 797.3, 135.0),
        9: (3884.2, 657.1, 296.7),
        16: (4906.2, 644.8, 621.3),
        25: (5872.6, 683.5, 1218.1),
    },
}
REPLICATIONS = 500

# policy -> market -> slopes of log(mean regret) in log d and log T; with the offset 0.5 log log T (ETC), 1.5 (supCB)
SLOPES = {
    "etc": {"s1": (0.48, 0.49), "s2": (0.51, 0.45)},
    "supcb": {"s1": (0.50, 0.49), "s2": (0.47, 0.51)},
}
