#!/usr/bin/env bash
# Fails if `make generate` would change a file. It compares the files before and after, so it also works with uncommitted
# changes. It leaves the updated files in place.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

snapshot() {
  git ls-files --cached --others --exclude-standard -z | sort -zu | xargs -0 sha256sum 2>/dev/null || true # fails for a deleted file
}

before=$(snapshot)
if [ -z "$before" ]; then
  echo 'cannot compare the generated files: sha256sum or git is missing' >&2
  exit 2
fi
go generate ./...
after=$(snapshot)
if [ "$before" != "$after" ]; then
  echo "generated files were out of date and are updated now; commit them:" >&2
  diff <(echo "$before") <(echo "$after") | sed -n 's/^[<>] [0-9a-f]*  /  /p' | sort -u >&2 || true # diff fails if it finds differences
  exit 1
fi
