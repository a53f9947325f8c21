#!/bin/sh
# Builds the programs that tests exchange images and signatures with, from source: test/peers/go.mod pins them. cosign,
# crane and skopeo are the clients; fulcio, rekor-server and timestamp-server are what keyless signing needs.
#
#   test/peers/build.sh [TOOL...]      default: all of them
#
# Binaries go to bin/peers/ below the repository's root ($CVO_PEERS_BIN names another folder), and are rebuilt when
# Go, go.mod, go.sum or this script has changed. $CVO_PEERS_MODULE names the folder of another go.mod, such as test/helm,
# which pins helm.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
bin=${CVO_PEERS_BIN:-$(CDPATH='' cd -- "$here/../.." && pwd)/bin/peers}
mkdir -p "$bin"
bin=$(CDPATH='' cd -- "$bin" && pwd)
script=$here/build.sh
cd "${CVO_PEERS_MODULE:-$here}"

[ $# -gt 0 ] || set -- cosign crane skopeo fulcio rekor-server timestamp-server

if command -v flock >/dev/null 2>&1; then
	exec 9>"$bin/.lock"
	flock 9
fi

# Without cgo skopeo reads OpenPGP keys with a library of its own instead of GnuPG's, and needs nothing installed.
export CGO_ENABLED=0
export GOWORK=off
tags=containers_image_openpgp

package() {
	case $1 in
	cosign) echo github.com/sigstore/cosign/v3/cmd/cosign ;;
	crane) echo github.com/google/go-containerregistry/cmd/crane ;;
	skopeo) echo github.com/containers/skopeo/cmd/skopeo ;;
	helm) echo helm.sh/helm/v3/cmd/helm ;;
	fulcio) echo github.com/sigstore/fulcio ;;
	rekor-server) echo github.com/sigstore/rekor-tiles/v2/cmd/rekor-server/posix ;;
	timestamp-server) echo github.com/sigstore/timestamp-authority/v2/cmd/timestamp-server ;;
	*)
		echo "peers: unknown tool $1: see the tool directives of $PWD/go.mod" >&2
		exit 2
		;;
	esac
}

sources=$({
	go version
	cat go.mod go.sum "$script"
} | cksum)

number=0
for tool in "$@"; do
	number=$((number + 1))
	package=$(package "$tool")
	if [ -x "$bin/$tool" ] && [ "$(cat "$bin/.$tool.stamp" 2>/dev/null)" = "$sources" ]; then
		continue
	fi
	echo "peers: building $tool, $number of $# (1 to 4 minutes on two cores, once)" >&2
	"$here/../../hack/download.sh"
	# Build to a temporary file, so that an interrupted build leaves no partial binary.
	go build -trimpath -tags "$tags" -ldflags '-s -w' -o "$bin/.$tool.new" "$package"
	mv -f "$bin/.$tool.new" "$bin/$tool"
	echo "$sources" >"$bin/.$tool.stamp"
done
echo "peers: $* in $bin" >&2
