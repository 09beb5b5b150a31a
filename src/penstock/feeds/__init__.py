"""Feeds: where changes come from, one package per dialect."""
