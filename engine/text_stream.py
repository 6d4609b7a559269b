"""Token bytes to reply text: whole characters only, ended by the first stop string.

The text does not depend on how bytes fall into tokens or tokens into blocks:

- bytes decode as in one `bytes.decode("utf-8", "replace")`; an unfinished character waits for its rest;
- the stop string whose last character comes first ends the text, and of two that end on one character the
  longer (it begins earlier). Nothing from its first character on is ever given out;
- what may still become a stop string waits, and is given out once it cannot, or at the end.

A token costs time in proportion to its own length, whatever was written before: the stop strings are one
Aho-Corasick automaton, whose depth is exactly the number of characters that must wait.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.errors import BadRequest


@dataclass(slots=True)
class _Node:
    """The text read so far ends with this node's `depth` characters, the longest such start of a stop string."""

    depth: int = 0
    next: dict[str, _Node] = field(default_factory=dict)
    fallback: _Node | None = None
    """The longest proper suffix that also starts a stop string; None at the root."""
    ends: int = 0
    """Length of the longest stop string that ends here; 0 if none does."""

    def step(self, char: str) -> _Node:
        node = self
        while char not in node.next:
            if node.fallback is None:
                return node
            node = node.fallback
        return node.next[char]


def _automaton(stops: Sequence[str]) -> _Node:
    root = _Node()
    for stop in stops:
        node = root
        for char in stop:
            node = node.next.setdefault(char, _Node(node.depth + 1))
        node.ends = len(stop)
    root_children = list(root.next.values())
    for child in root_children:
        child.fallback = root
    queue = deque(root_children)
    while queue:  # breadth first: a fallback is always shallower, so it is finished before it is needed
        node = queue.popleft()
        assert node.fallback is not None
        node.ends = node.ends or node.fallback.ends
        for char, child in node.next.items():
            child.fallback = node.fallback.step(char)
            queue.append(child)
    return root


class TextStream:
    """One reply's text. Push tokens as they are kept; `finish` when the reply ends for another reason."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        """Raise BadRequest for an empty stop string, which would match everywhere."""
        if "" in stop:
            raise BadRequest("a stop string is empty; leave it out or give it text")
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._node = _automaton(stop)
        self._waiting = ""  # the last `_node.depth` characters
        self.tokens = 0
        """Tokens read so far. Once `stopped`, the last of them completed the stop string."""
        self.characters = 0
        """Characters read so far, those that wait or were cut off included."""
        self.stopped = False
        """A stop string has ended the text."""

    def push(self, pieces: Iterable[bytes]) -> str:
        """Read one piece per token and return the text they release. Reads no further once `stopped`."""
        released = []
        for piece in pieces:
            if self.stopped:
                break
            self.tokens += 1
            released.append(self._read(self._utf8.decode(piece)))
        return "".join(released)

    def finish(self) -> str:
        """The reply is over: return what was waiting. Bytes of an unfinished character become U+FFFD."""
        if self.stopped:
            return ""
        released = self._read(self._utf8.decode(b"", final=True)) + ("" if self.stopped else self._waiting)
        self._waiting = ""
        return released

    def _read(self, new: str) -> str:
        self.characters += len(new)
        text, first = self._waiting + new, len(self._waiting)
        for at in range(first, len(text)):
            self._node = self._node.step(text[at])
            if self._node.ends:
                self.stopped = True
                self._waiting = ""
                return text[: at + 1 - self._node.ends]
        cut = len(text) - self._node.depth
        self._waiting = text[cut:]
        return text[:cut]
