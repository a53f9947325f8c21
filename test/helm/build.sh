#!/bin/sh
# Builds the Helm that test/helm/go.mod pins, from source, into bin/peers/helm below the repository's root, unless
# neither go.mod, go.sum nor this script has changed since the last build.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
bin=$here/../../bin/peers
mkdir -p "$bin"
cd "$here"
if command -v flock >/dev/null 2>&1; then
	exec 9>"$bin/.lock"
	flock 9
fi

stamp=$({ go version; cat go.mod go.sum build.sh; } | cksum)
if [ -x "$bin/helm" ] && [ "$(cat "$bin/.helm.stamp" 2>/dev/null)" = "$stamp" ]; then exit; fi
echo "helm: building (about 2 minutes on two cores, once)" >&2
export CGO_ENABLED=0 GOWORK=off
go mod download # quietly, instead of a line for each module
go build -trimpath -ldflags '-s -w' -o "$bin/.helm.new" helm.sh/helm/v3/cmd/helm
mv -f "$bin/.helm.new" "$bin/helm"
echo "$stamp" >"$bin/.helm.stamp"
