"""Members of consumer groups that cost almost nothing, so that the coordinator is measured and not the client."""
