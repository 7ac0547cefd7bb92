"""Private look-ahead pricing: dithered prices, what reports about them tell, and how the next prices are dithered.

``prices.py`` has the formulas that both halves share. ``score.py`` is the device's half: prices and reports. The others
are the server's, which sees sums of decoded reports alone: ``expected.py`` says what sums are expected for each theta,
``posterior.py`` finds the theta that explains them, and ``design.py`` chooses what is published next.
"""
