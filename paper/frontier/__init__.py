"""How far each rule is from the best that is possible."""
