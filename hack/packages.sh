#!/usr/bin/env bash
# Checks that each of its arguments, the patterns in PKG, selects packages of this module. Go takes a folder without ./ for a package of its
# standard library.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

go list -m >/dev/null # an error of the module or of GOFLAGS stands alone

for pattern; do
  if [[ $pattern != .* ]] && [ -d "./${pattern%/...}" ]; then
    echo "PKG=$pattern is no pattern for packages: write ./$pattern" >&2
    exit 2
  fi
  if [ -d "$pattern" ] && ! compgen -G "$pattern/*.go" >/dev/null && go list "$pattern/..." 2>/dev/null | grep . >/dev/null; then
    echo "PKG=$pattern selects no package: write ${pattern%/}/..." >&2
    exit 2
  fi
  if ! packages=$(go list "$pattern" 2>&1) || [[ $packages == *'matched no packages'* ]]; then
    printf 'PKG=%s selects no package: name folders, such as PKG=./pkg/apply or PKG=./pkg/...\n%s\n' "$pattern" "$packages" >&2
    exit 2
  fi
  if go list -f '{{if not (and .Module .Module.Main)}}outside{{end}}' "$pattern" | grep . >/dev/null; then
    echo "PKG=$pattern selects packages of other modules: name folders, such as PKG=./pkg/apply or PKG=./pkg/..." >&2
    exit 2
  fi
done
