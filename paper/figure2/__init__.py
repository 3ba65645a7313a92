"""Figure 2: pass@k and all-correct@k, and the pass-rate law behind them."""
