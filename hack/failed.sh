#!/usr/bin/env bash
# Lists the tests that failed or did not end, and the packages that failed without such a test: they did not compile, or failed outside of
# tests. Its arguments are files with the output of `go test -json`.
set -euo pipefail
if [ ! -e "${1:-}" ]; then exit; fi

jq -r --slurp 'map(select(.Package)) | group_by(.Package)[] | select(any(.Action == "fail" and .Test == null)) | .[0].Package as $package |
  map(select(.Test)) | group_by(.Test) | map(select(any(.Action == "fail") or (any(.Action == "pass" or .Action == "skip") | not)) | .[0].Test) |
  if . == [] then $package + " " else "\($package) \(.[])" end' "$@"
