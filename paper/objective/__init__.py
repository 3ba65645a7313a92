"""The objective that each rule climbs."""
