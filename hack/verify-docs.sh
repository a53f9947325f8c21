#!/usr/bin/env bash
# Fails if a Markdown file links to a missing file, or to a heading that its target does not have. It ignores links to
# other sites, because the check must not fail when another server is down.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
git ls-files --error-unmatch Makefile >/dev/null # outside of a clone there would be no files to check

# links prints the targets of a file's links and images, outside code blocks.
links() {
  awk '/^[ ]*```/ { code = !code; next } !code' "$1" | sed 's/`[^`]*`//g' |
    grep -oE '\]\([^) ]+|^\[[^]]+\]: +[^ ]+' | sed -E 's/^\]\(|^\[[^]]+\]: +//' || true
}

# anchors prints the anchors that GitHub gives a file's headings.
anchors() {
  awk '/^[ ]*```/ { code = !code; next } !code && /^#+ /' "$1" | sed -E 's/^#+ +//' |
    tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

bad=0
while IFS= read -r -d '' file; do
  [ -f "$file" ] || continue
  while IFS= read -r link; do
    [ -n "$link" ] || continue
    case $link in http://* | https://* | mailto:*) continue ;; esac
    path=${link%%#*} anchor=""
    case $link in *'#'*) anchor=${link#*#} ;; esac
    target=$file
    if [ -n "$path" ]; then target=$(dirname "$file")/$path; fi
    if [ ! -e "$target" ]; then
      echo "$file: link to $link: there is no $target" >&2
      bad=1
    elif [ -n "$anchor" ] && [[ $target == *.md ]] && ! grep -qxF -- "$anchor" <<<"$(anchors "$target")"; then
      echo "$file: link to $link: $target has no such heading" >&2
      bad=1
    fi
  done < <(links "$file")
done < <(git ls-files --cached --others --exclude-standard -z -- '*.md')
exit $bad
