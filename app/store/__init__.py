"""Chats on disk: all SQL is in here."""

from app.store.errors import NotFound, StoreError
from app.store.search import Hit, Words
from app.store.store import ChatStore
from app.store.totals import ChatTotals, DrafterTotals

__all__ = ["ChatStore", "ChatTotals", "DrafterTotals", "Hit", "NotFound", "StoreError", "Words"]
