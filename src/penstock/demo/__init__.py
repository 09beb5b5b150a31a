"""The bank: a changefeed with all that goes wrong in one, and a tour of what Penstock makes of it."""
