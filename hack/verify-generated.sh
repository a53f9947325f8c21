#!/usr/bin/env bash
# Fails if `make generate` would change a file. It compares before and after instead of asking git for a clean tree,
# so that it also works amid uncommitted work; what was out of date is up to date afterwards.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

snapshot() {
  git ls-files --cached --others --exclude-standard -z | sort -zu |
    while IFS= read -r -d '' file; do
      if [ -f "$file" ]; then printf '%s  %s\n' "$(git hash-object --no-filters -- "$file")" "$file"; fi
    done
}

before=$(snapshot)
go generate ./...
after=$(snapshot)
if [ "$before" != "$after" ]; then
  echo "generated files were out of date; they are written now, commit them:" >&2
  diff <(echo "$before") <(echo "$after") | sed -n 's/^[<>] [0-9a-f]*  /  /p' | sort -u >&2
  exit 1
fi
