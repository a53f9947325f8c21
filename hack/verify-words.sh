#!/usr/bin/env bash
# Fails if the tree depends on one developer's machine: an absolute path into a home or working directory, a host of a
# private network, or a module proxy other than the public one. Other clones of this repository do not have them. It also
# fails if git has a built program, if a comment or a page has a word that hides who acts, or if a declared Go name does not describe its
# value or action.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
git ls-files --error-unmatch Makefile >/dev/null # outside of a clone there would be no files to check

self=hack/verify-words.sh
bad=0

# search ARGUMENTS... prints the matching lines of files in git, or that will be.
search() {
  git grep --no-color --no-column --untracked -nIE "$@" || [ $? -eq 1 ] # no match
}

# refuse REASON PATTERN [EXCEPTION]
refuse() {
  local found
  found=$(search -e "$2" -- . ":!$self" ':!*.sum')
  if [ -n "${3:-}" ]; then found=$(grep -vE -- "$3" <<<"$found" || true); fi
  if [ -n "$found" ]; then
    printf '%s:\n%s\n' "$1" "$found" >&2
    bad=1
  fi
}

# /home/core is the login of image-based node systems, whose SSH keys the node stage writes.
refuse "absolute paths of one machine" \
  "(^|[^A-Za-z0-9._~/*\$})-])/(root|home|work|Users)/" '/home/core(/|[^A-Za-z0-9])'
refuse "hosts of a private network" \
  'https?://[A-Za-z0-9.-]+\.(internal|intranet|corp|lan|home\.arpa)([:/"]|$)'
refuse "a module proxy or checksum setting for one place" \
  '(GOPROXY|GOSUMDB|GONOSUMDB|GONOPROXY|GOPRIVATE)[ ]*[:?]?=' 'GOPROXY=(https://proxy\.golang\.org|direct|off)'

# Only package test/fixture spells the name of the variable: tests would skip if another package misspelled it.
lookups=$(search -e '(Getenv|LookupEnv)\("CVO_TESTDATA|"CVO_TESTDATA"' -- '*.go' ':!test/fixture/testdata.go')
if [ -n "$lookups" ]; then
  printf 'use fixture.Testdata to find real releases:\n%s\n' "$lookups" >&2
  bad=1
fi

# words that hide who acts: "reports" instead of "tells", "an administrator" instead of "somebody"
words='tell|tells|told|whoever|nobody|somebody|anew'
comments=$(search -i -e "(^|[^:])//.*\\b($words)\\b" -- '*.go')
pages=$(search -i -e "\\b($words)\\b" -- '*.md' ':!docs/reference')
texts=$(printf '%s\n' "$comments" "$pages" | grep -v -e '^$' -e 'user nobody' || [ $? -eq 1 ]) # the Unix account
if [ -n "$texts" ]; then
  printf 'rewrite these: name who acts:\n%s\n' "$texts" >&2
  bad=1
fi

# names that do not describe their value or action
folders=(pkg internal cmd charts manifests docs test hack examples)
words="$words|hear|hears|heard|farewell|passing|sending|whom|spot|post|word|way|take|Passer"
names=$(search \
  -e "^func (\([^)]*\) )?($words)[[({]" -e "^(type|var|const) ($words) " -e "(^|[^A-Za-z0-9_.\"])($words)(, [A-Za-z0-9_]+)* :=" \
  -e "^[[:space:]]+($words) +([*[]|map|func|string|int|bool|time\\.|error)" -- "${folders[@]/%/*.go}" |
  { grep -vE '^[^:]+:[0-9]+:[[:space:]]*//|[^A-Za-z0-9_]word := range ' || [ $? -eq 1 ]; }) # a loop over words
if [ -n "$names" ]; then
  printf 'rename these: the names do not describe their value or action:\n%s\n' "$names" >&2
  bad=1
fi

# A program that a build left behind is not source. The other searches skip binary files.
programs=$(git grep --untracked -laP '^\x7fELF' -- . || [ $? -eq 1 ])
if [ -n "$programs" ]; then
  printf 'remove these programs:\n%s\n' "$programs" >&2
  bad=1
fi
exit $bad
