"""The bank: a deterministic changefeed with all that goes wrong in one, and a guided tour of what Penstock makes of it."""
