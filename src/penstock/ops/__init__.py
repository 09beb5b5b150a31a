"""What people look at: plans, status, and their renderings."""
