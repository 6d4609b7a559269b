"""A result as one HTML page: plots by matplotlib, and the page around them. Import plots only where a page is made."""
