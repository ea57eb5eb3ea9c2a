"""Tests against a real server: EXOSWARM_API and EXOSWARM_TOKEN_FILE name it.

go test ./cmd/exoswarm -run TestPython starts one and runs them.
"""
