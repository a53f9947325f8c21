#!/usr/bin/env bash
# Lists the tests that failed or did not end, and the packages that failed or did not end without such a test: they did not compile, or
# failed outside of tests. Its arguments are files with the output of `go test -json`.
set -euo pipefail
if [ ! -e "${1:-}" ]; then exit; fi

# Each file is a run of its own. A killed run ends with a part of a line.
for results; do
  jq -R 'fromjson?' "$results" | jq -r --slurp 'map(select(.Package)) | group_by(.Package)[] | 
    select(any(.Action == "fail") or (any(.Test == null and (.Action == "pass" or .Action == "skip")) | not)) | .[0].Package as $package |
    map(select(.Test)) | group_by(.Test) | map(select(any(.Action == "fail") or (any(.Action == "pass" or .Action == "skip") | not)) | .[0].Test) |
    if . == [] then $package + " " else "\($package) \(.[])" end'
done | sort -u
