//go:build linux

package nodes_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/test/systemd"
)

// boot makes a folder the root of a host, in another boot each time.
func boot(t *testing.T, root string, number int) {
	t.Helper()
	for name, data := range map[string]string{
		"/proc/1/stat":                    fmt.Sprintf("1 (init) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 %d 9 10", number),
		"/proc/sys/kernel/random/boot_id": "0a1b",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(root+name), 0o755))
		require.NoError(t, os.WriteFile(root+name, []byte(data), 0o600))
	}
}

// TestServiceOfTheHostMakesTheChange has a host with a played systemd. It runs the program that the daemon has copied to the host. The daemon ends
// while the service runs, and after the request of a reboot.
func TestServiceOfTheHostMakesTheChange(t *testing.T) {
	s := prepare(t, "n1")
	root := s.hosts["n1"]
	boot(t, root, 1)
	const guard = "/etc/systemd/system/" + config.GuardUnit
	begun, resume := make(chan struct{}, 1), make(chan struct{})
	reboots := make(chan struct{}, 10)
	var first sync.Once
	host := systemd.Play(t, root+"/run/systemd/private", systemd.Options{Job: func(call string, command []string) string {
		switch call {
		case "StartTransientUnit cvo-node-apply.service fail":
			first.Do(func() { begun <- struct{}{}; <-resume })
			service := exec.Command(root+command[0], append([]string{command[1], "--root", root}, command[2:]...)...)
			service.Env = append(os.Environ(), processVariable+"=cvo-node")
			service.Stdout, service.Stderr = t.Output(), t.Output()
			if err := service.Run(); err != nil {
				t.Error(err)
			}
		case "RestartUnit " + config.GuardUnit + " replace":
			_, err := os.Stat(root + guard)
			if _, motd := os.Stat(root + "/etc/motd"); err != nil || !errors.Is(motd, os.ErrNotExist) {
				t.Errorf("the guard must be enabled before the first write: %v, %v", err, motd)
			}
		case "StartUnit reboot.target replace-irreversibly":
			reboots <- struct{}{}
		}
		return "done"
	}})
	s.controller("1.0.0")
	stop := s.daemon("n1", "1.0.0")
	s.config("00-worker", map[string]string{"/etc/motd": "hello"})
	<-begun
	stop()
	close(resume)
	<-reboots
	stop = s.daemon("n1", "1.0.0")
	s.eventually(func(c *assert.CollectT) { // the daemon of the same boot reports the reboot, and requests it again
		m := &mcfgv1.MachineConfigNode{}
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: "n1"}, m))
		assert.True(c, meta.IsStatusConditionPresentAndEqual(m.Status.Conditions, "RebootedNode", metav1.ConditionUnknown))
	})
	n := &corev1.Node{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: "n1"}, n))
	assert.Empty(t, n.Annotations[api.CurrentConfigAnnotation])
	assert.FileExists(t, root+"/etc/motd")
	assert.FileExists(t, root+guard)

	stop()
	boot(t, root, 2)
	s.daemon("n1", "1.0.0")
	s.updated("")
	assert.NoFileExists(t, root+guard)
	assert.Equal(t, []string{
		"StartTransientUnit cvo-node-apply.service fail", "Reload", "RestartUnit cvo-node-guard.service replace",
		"StartUnit reboot.target replace-irreversibly",
	}, host.Calls()[:4])
}
