"""`paceline tune`: what is fastest here (`search` decides, `decision` judges, `measuring` times), and where that is kept
(`store`, which app/wiring.py reads at every load)."""
