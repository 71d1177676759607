"""Serving: times of many steps of an engine, and what requests that arrive together get of them."""
