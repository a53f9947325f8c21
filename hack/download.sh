#!/bin/sh
# Downloads the modules of the go.mod in the working directory, and says so. Without it, Go would print a line for each module. It tries
# again while the download fails, unless another attempt cannot help.
set -eu
GOPROXY=off go mod download >/dev/null 2>&1 && exit
# The same two checks as in .ci/run: a fault of go.mod, or a Go that is too old and may not download another one, is not outside.
GOTOOLCHAIN=local go mod edit -json >/dev/null
if [ "$(go env GOTOOLCHAIN)" = local ]; then go list -m >/dev/null; fi
echo "downloading the modules of $PWD/go.mod (about 1 minute, once)" >&2
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
trap 'exit 1' INT TERM
for pause in 5 10 20 40 60 ''; do
	go mod download 2>"$errors" && exit
	cat "$errors" >&2
	# the same faults as in .ci/run
	if grep -qE 'checksum mismatch|unknown revision|[Nn]o space left on device' "$errors"; then exit 1; fi
	if [ -z "$pause" ]; then break; fi
	echo "cannot download the modules, trying again in $pause s" >&2
	sleep "$pause"
done
echo "a fault outside this repository: cannot download the modules of $PWD/go.mod" >&2
exit 1
