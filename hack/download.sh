#!/bin/sh
# Downloads the modules of the go.mod in the working directory, and says so. Without it, Go would print a line for each module.
set -eu
GOPROXY=off go mod download >/dev/null 2>&1 && exit
echo "downloading the modules of $PWD/go.mod (about 1 minute, once)" >&2
for pause in 5 10 20; do
	go mod download && exit
	echo "cannot download the modules, trying again in $pause s" >&2
	sleep "$pause"
done
go mod download
