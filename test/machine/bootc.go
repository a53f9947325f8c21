package machine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"
)

// Bootc plays a host that bootc has booted: the programs bootc and ostree, and the boots of deployments that have a /etc of their own and share all else.
// The root folder has /etc of the booted one.
type Bootc struct {
	*Machine
}

// The state of a played host with bootc. The folder has the files booted and rollback with pullspecs, queued if rollback boots next, and calls with the
// command lines, and the folder etc of the rollback. Tests write composefs for a host without ostree, fails with a command that fails, and dies with one
// that is killed after its work.
const (
	bootcState = "/sysroot"
	// bootcStaged is lost without a shutdown.
	bootcStaged = "/run/staged"
	// bootcDefault is a file of /etc that comes from the image of its deployment.
	bootcDefault = "/etc/os-release"
)

// The programs work as those of bootc 1: switch compares the image with the one that is staged, or booted; rollback removes what is staged, and is a
// toggle.
const (
	bootcScript = `#!/bin/sh
cd "${0%/usr/bin/bootc}/sysroot" || exit 1
echo "bootc $*" >>calls
deployment() {
	[ -e "$1" ] || { echo null; return; }
	ostree=null
	[ -e composefs ] || ostree='{"checksum": "0a", "deploySerial": 0}'
	[ -s "$1" ] || { echo '{"image": null}'; return; }
	echo "{\"image\": {\"image\": {\"image\": \"$(cat "$1")\", \"transport\": \"registry\"}, \"imageDigest\": \"sha256:0a\"}, \"ostree\": $ostree}"
}
if [ "$(cat fails 2>/dev/null)" = "$1" ]; then
	echo "error: $1 fails" >&2
	exit 1
fi
case $1 in
status)
	queued=false
	[ -e queued ] && queued=true
	echo "{\"apiVersion\": \"org.containers.bootc/v1\", \"kind\": \"BootcHost\", \"status\": {\"staged\": $(deployment ../run/staged)," \
		"\"booted\": $(deployment booted), \"rollback\": $(deployment rollback), \"rollbackQueued\": $queued}}"
	;;
switch)
	spec=booted
	[ -e ../run/staged ] && spec=../run/staged
	[ "$(cat $spec)" = "$3" ] || printf %s "$3" >../run/staged
	;;
rollback)
	[ -e rollback ] || { echo "error: No rollback available" >&2; exit 1; }
	rm -f ../run/staged
	if [ -e queued ]; then rm queued; else : >queued; fi
	;;
*) exit 2 ;;
esac
[ "$(cat dies 2>/dev/null)" != "$1" ] || kill -9 $$
`
	ostreeScript = `#!/bin/sh
cd "${0%/usr/bin/ostree}/sysroot" || exit 1
echo "ostree $*" >>calls
[ "$*" = "admin undeploy 0" ] || exit 2
[ -e ../run/staged ] || { echo "error: Cannot undeploy currently booted deployment" >&2; exit 1; }
rm ../run/staged
`
)

// PlayBootc makes bootc boot the machine with an image. It has no other deployment.
func (m *Machine) PlayBootc(image string) *Bootc {
	m.t.Helper()
	b := &Bootc{m}
	for name, script := range map[string]string{"/usr/bin/bootc": bootcScript, "/usr/bin/ostree": ostreeScript} {
		m.Write(name, script)
		require.NoError(m.t, os.Chmod(m.Root+name, 0o755))
	}
	m.Write("/run/ostree-booted", "")
	m.Write(bootcState+"/booted", image)
	m.Write(bootcDefault, image)
	return b
}

// State returns the content of a file of the state; empty if there is none.
func (b *Bootc) State(name string) string { return b.content(bootcState + "/" + name) }

// SetState writes a file of the state.
func (b *Bootc) SetState(name, content string) { b.Write(bootcState+"/"+name, content) }

// Staged returns the image that a shutdown deploys; empty if there is none.
func (b *Bootc) Staged() string { return b.content(bootcStaged) }

// Commands returns the commands that change something since the last call of it.
func (b *Bootc) Commands() []string {
	b.t.Helper()
	var changes []string
	for call := range strings.Lines(b.State("calls")) {
		if !strings.HasPrefix(call, "bootc status") {
			changes = append(changes, strings.TrimSpace(call))
		}
	}
	b.remove(bootcState + "/calls")
	return changes
}

// Shutdown boots the machine after a shutdown: what is staged becomes the booted deployment, with a copy of /etc.
func (b *Bootc) Shutdown() {
	b.t.Helper()
	if image := b.Staged(); image != "" {
		b.remove(bootcState + "/etc")
		require.NoError(b.t, os.CopyFS(b.Root+bootcState+"/etc", os.DirFS(b.Root+"/etc")))
		b.SetState("rollback", b.State("booted"))
		b.SetState("booted", image)
		b.Write(bootcDefault, image)
		b.remove(bootcState + "/queued")
	}
	b.PowerCut()
}

// PowerCut boots the machine without a shutdown.
func (b *Bootc) PowerCut() {
	b.t.Helper()
	b.remove(bootcStaged)
	if _, err := os.Stat(b.Root + bootcState + "/queued"); err == nil {
		b.remove(bootcState + "/queued")
		b.swap()
	}
	b.Boot()
}

// FallBack boots the other deployment once, as a boot loader does after failures.
func (b *Bootc) FallBack() {
	b.t.Helper()
	b.swap()
	b.SetState("queued", "")
	b.Boot()
}

// swap exchanges both deployments.
func (b *Bootc) swap() {
	booted, rollback := b.State("booted"), b.State("rollback")
	b.SetState("booted", rollback)
	b.SetState("rollback", booted)
	etc, other, temporary := b.Root+"/etc", b.Root+bootcState+"/etc", b.Root+bootcState+"/swap"
	for _, rename := range [][2]string{{etc, temporary}, {other, etc}, {temporary, other}} {
		require.NoError(b.t, os.Rename(rename[0], rename[1]))
	}
}

func (b *Bootc) content(name string) string {
	data, err := os.ReadFile(filepath.Join(b.Root, name))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(b.t, err)
	}
	return string(data)
}

func (b *Bootc) remove(name string) { require.NoError(b.t, os.RemoveAll(b.Root+name)) }
