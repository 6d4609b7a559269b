"""`paceline tune`: what is fastest here (`search` decides, `decision` judges, `loads` and engine/trial.py time), and where that is kept
(`store`, which app/wiring.py reads at every load)."""
