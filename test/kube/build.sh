#!/bin/sh
# Builds Kubernetes tools from source, with nothing but Go and its module proxy: test/kube/go.mod pins them as tools.
#
#   test/kube/build.sh [TOOL...]      default: etcd kube-apiserver
#
# Binaries go to bin/kube/ below the repository's root ($CVO_KUBE_BIN names another folder). $CVO_KUBE_MODULE names the
# folder of another go.mod that pins them, such as test/kube/compat. A stamp next to each binary contains the
# hash of its inputs, and the script builds only outdated tools. Parallel runs wait for each other if flock is
# installed.
#
# If $KUBEBUILDER_ASSETS, the folder of envtest, has a tool with the pinned minor version, that one is linked instead. Each
# run checks the version of linked tools again.
set -eu

case ${KUBEBUILDER_ASSETS:-} in
'' | /*) ;;
*) KUBEBUILDER_ASSETS=$PWD/$KUBEBUILDER_ASSETS ;;
esac
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
bin=${CVO_KUBE_BIN:-$(CDPATH='' cd -- "$here/../.." && pwd)/bin/kube}
mkdir -p "$bin"
bin=$(CDPATH='' cd -- "$bin" && pwd)
script=$here/build.sh
cd "${CVO_KUBE_MODULE:-$here}"

[ $# -gt 0 ] || set -- etcd kube-apiserver

export CGO_ENABLED=0
# A go.work above must not mix the main module's versions with these.
export GOWORK=off

version=$(sed -n 's/^[[:space:]]*k8s\.io\/kubernetes \(v[0-9.]*\).*/\1/p' go.mod)
majorMinor=${version#v}
major=${majorMinor%%.*}
minor=${majorMinor#*.}
minor=${minor%%.*}
# Without the stamp the API server calls itself v0.0.0-master, which clients cannot read.
stamped=k8s.io/component-base/version
ldflags="-s -w -X $stamped.gitVersion=$version -X $stamped.gitMajor=$major -X $stamped.gitMinor=$minor"

package() {
	case $1 in
	etcd) echo go.etcd.io/etcd/server/v3 ;;
	kube-apiserver | kube-controller-manager | kube-proxy | kube-scheduler | kubeadm | kubectl | kubelet) echo "k8s.io/kubernetes/cmd/$1" ;;
	kind) echo sigs.k8s.io/kind ;;
	kwok) echo sigs.k8s.io/kwok/cmd/kwok ;;
	*)
		echo "kube-tools: unknown tool $1: see the tool directives of $PWD/go.mod" >&2
		exit 2
		;;
	esac
}

# "go version" answers for the toolchain that go.mod selects; cksum is everywhere, sha256sum is not.
sources=$({
	go version
	echo "$ldflags"
	cat go.mod go.sum "$script"
} | cksum)

limit=$(command -v timeout >/dev/null 2>&1 && echo timeout 20) || true

# is_pinned TOOL FILE succeeds if the file is this tool of the pinned minor version.
is_pinned() {
	case $1 in
	etcd) pinned=$(sed -n 's|^[[:space:]]*go\.etcd\.io/etcd/server/v3 v\([0-9]*\.[0-9]*\).*|\1|p' go.mod) found=$($limit "$2" --version) ;;
	kubectl) pinned=v$major.$minor found=$($limit "$2" version --client) ;;
	kube-apiserver) pinned=v$major.$minor found=$($limit "$2" --version) ;;
	*) return 1 ;;
	esac
	case $found in *"$pinned".*) return 0 ;; esac
	echo "kube-tools: $2 is not used, because it is not version $pinned: $(echo "$found" | head -n 1)" >&2
	return 1
}

# has_envtest_tool succeeds if the folder of envtest has a tool of the pinned minor version.
has_envtest_tool() {
	candidate=${KUBEBUILDER_ASSETS:-}/$1
	[ -n "${KUBEBUILDER_ASSETS:-}" ] || return 1
	[ "$KUBEBUILDER_ASSETS" -ef "$bin" ] && return 1
	if ! [ -x "$candidate" ]; then
		echo "kube-tools: $KUBEBUILDER_ASSETS has no $1" >&2
		return 1
	fi
	is_pinned "$1" "$candidate"
}

# stamp TOOL prints what the tool was built from, and its size, which shows a damaged file.
stamp() { echo "$sources $(wc -c <"$bin/$1")"; }

# find_outdated lists the outdated tools.
find_outdated() {
	outdated=
	for tool in "$@"; do
		package "$tool" >/dev/null
		if [ -x "$bin/$tool" ] && [ "$(cat "$bin/.$tool.stamp" 2>/dev/null)" = "$(stamp "$tool")" ] &&
			{ ! [ -L "$bin/$tool" ] || is_pinned "$tool" "$bin/$tool" 2>/dev/null; }; then
			continue
		fi
		outdated="$outdated $tool"
	done
}

# Wait for a parallel build only if a tool is outdated. Afterwards it may be current.
find_outdated "$@"
if [ -n "$outdated" ] && command -v flock >/dev/null 2>&1; then
	exec 9>"$bin/.lock"
	if ! flock -n 9; then
		echo "kube-tools: another build is running, waiting for it" >&2
		flock 9
	fi
	find_outdated "$@"
fi

# minutes says how long a build takes on two cores with an empty cache.
minutes() {
	case $1 in
	kube-apiserver) echo "2 to 6 minutes" ;;
	kubelet | kube-controller-manager) echo "1 to 4 minutes" ;;
	*) echo "about 1 minute" ;;
	esac
}

count=$(echo "$outdated" | wc -w) number=0
for tool in $outdated; do
	number=$((number + 1))
	if has_envtest_tool "$tool"; then
		echo "kube-tools: using $candidate" >&2
		ln -sf "$candidate" "$bin/$tool"
		stamp "$tool" >"$bin/.$tool.stamp"
		continue
	fi
	if [ -z "${downloaded:-}" ]; then "$here/../../hack/download.sh"; fi
	downloaded=1
	echo "kube-tools: building $tool, $number of $count ($(minutes "$tool") on two cores, once)" >&2
	began=$(date +%s)
	# Build to a temporary file, so that an interrupted build leaves no partial binary, and a running one is not overwritten.
	go build -trimpath -ldflags "$ldflags" -o "$bin/.$tool.new" "$(package "$tool")"
	# Go's test cache compares times of files. Where touch knows this format, equal binaries have equal times.
	touch -d "@$((${sources%% *} % 1000000000))" "$bin/.$tool.new" 2>/dev/null || true
	mv -f "$bin/.$tool.new" "$bin/$tool"
	stamp "$tool" >"$bin/.$tool.stamp"
	echo "kube-tools: built $tool in $(($(date +%s) - began)) s" >&2
done
echo "kube-tools: $* in $bin" >&2
