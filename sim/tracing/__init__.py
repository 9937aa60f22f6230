"""Traces of single steps that Perfetto and chrome://tracing open."""
