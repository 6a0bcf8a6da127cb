"""Clients that write to a node while it is killed, and a judge that finds out whether it kept its word."""
