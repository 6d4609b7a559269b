"""Chats on disk: all SQL is in here."""

from app.store.errors import NotFound, StoreError
from app.store.overview import Found, find_chats
from app.store.search import Hit, Words
from app.store.store import ChatStore
from app.store.totals import ChatTotals, DrafterTotals

__all__ = ["ChatStore", "ChatTotals", "DrafterTotals", "Found", "Hit", "NotFound", "StoreError", "Words", "find_chats"]
