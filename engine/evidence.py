"""Evidence against a claim of how tokens were drawn: exact at any number of tokens, with any filters. Pure.

For a token x drawn from q, `q(x)**l / sum over y of q(y)**(1 + l)` has mean 1 for every fixed l. So has the product over
a whole reply, and the average of such products over several l: an e-value. By Markov's inequality it exceeds 1/a with
chance a at most, whatever the texts are and whenever one stops. It grows when the tokens look drawn from a tempered law
q**(1 + l): l > 0 finds a rule that keeps likely tokens too often, l < 0 one that keeps unlikely ones (as a draft's).

Over many replies the detector S' = (S + 1) e of Shiryaev and Roberts is kept: if nothing is wrong it reaches N after N
replies on average at the earliest, and a change is found however much went right before it.
"""

from __future__ import annotations

import numpy as np

from engine.sampling import Distribution

POWERS = (-0.75, -0.5, -0.25, 0.25, 0.5, 1.0)


class Evidence:
    """Add every token with the distribution it is said to be drawn from."""

    def __init__(self) -> None:
        self.tokens = 0
        self._powers = np.array(POWERS)
        self._logs = np.zeros(len(POWERS))

    def add(self, law: Distribution, probability: float) -> None:
        """A token that `law` gives this probability, above 0."""
        p = law.probs[law.probs > 0]
        self._logs += self._powers * np.log(probability) - np.log((p[None, :] ** (1 + self._powers[:, None])).sum(axis=1))
        self.tokens += 1

    def value(self) -> float:
        """The e-value; 1 of nothing."""
        return float(np.exp(self._logs - np.log(len(POWERS))).sum())


def detector(before: float, e_value: float) -> float:
    """The detector after one more reply."""
    return (before + 1.0) * e_value
