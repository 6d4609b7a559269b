"""Markdown as the transcript shows it: texts to flat blocks, at a cost per token that does not grow with the text."""

from app.tui.markdown.blocks import Block, Code, Flow, Part, Prose, Rule, Table, parts_of
from app.tui.markdown.growing import GrowingMarkdown
from app.tui.markdown.parser import parse_blocks

__all__ = ["Block", "Code", "Flow", "GrowingMarkdown", "Part", "Prose", "Rule", "Table", "parse_blocks", "parts_of"]
