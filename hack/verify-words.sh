#!/usr/bin/env bash
# Fails if the tree speaks of somebody's own machine: an absolute path into a home or working directory, a host of a
# private network, a module proxy other than the public one. Whoever clones this repository has none of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

self=hack/verify-words.sh
bad=0

# refuse REASON PATTERN [EXCEPTION]
refuse() {
  local found
  found=$(git grep --untracked -nIE -e "$2" -- . ":!$self" ':!*.sum' || true)
  if [ -n "${3:-}" ]; then found=$(grep -vE -- "$3" <<<"$found" || true); fi
  if [ -n "$found" ]; then
    printf '%s:\n%s\n' "$1" "$found" >&2
    bad=1
  fi
}

# /home/core is the login of image-based node systems, whose SSH keys the node stage writes.
refuse "absolute paths of somebody's machine" \
  "(^|[^A-Za-z0-9._~/*\$})-])/(root|home|work|Users)/" '/home/core(/|[^A-Za-z0-9])'
refuse "hosts of a private network" \
  'https?://[A-Za-z0-9.-]+\.(internal|intranet|corp|lan|home\.arpa)([:/"]|$)'
refuse "a module proxy or checksum setting that only one place has" \
  '(GOPROXY|GOSUMDB|GONOSUMDB|GONOPROXY|GOPRIVATE)[ ]*[:?]?=' 'GOPROXY=(https://proxy\.golang\.org|direct|off)'

# Only one function looks for real releases, and it decides whether their absence skips or fails a test.
lookups=$(git grep --untracked -nE '(Getenv|LookupEnv)\("CVO_TESTDATA|"CVO_TESTDATA"' -- '*.go' \
  ':!test/fixture/testdata.go' || true)
if [ -n "$lookups" ]; then
  printf 'use fixture.Testdata to find real releases:\n%s\n' "$lookups" >&2
  bad=1
fi
exit $bad
