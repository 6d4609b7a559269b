"""`paceline doctor`: what is here (`facts`), what of it is wrong and how to mend it (`checks`), and how that is shown."""
