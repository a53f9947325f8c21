//go:build linux

package nodes_test

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/test/machine"
	"github.com/cluster-version/cvo/test/systemd"
)

// playedHost is a folder that plays a host with systemd. Its services are real processes.
type playedHost struct {
	*machine.Machine
	t       *testing.T
	systemd *systemd.Systemd
	// reboots receives each request of a reboot.
	reboots chan struct{}
	// beforeService is called before each service that changes the host.
	beforeService func()
}

const guardFile = "/etc/systemd/system/" + config.GuardUnit

// playHost makes the folder of a node a host.
func (s *stage) playHost(node string) *playedHost {
	h := &playedHost{Machine: machine.Play(s.t, s.hosts[node]), t: s.t, reboots: make(chan struct{}, 100), beforeService: func() {}}
	h.systemd = systemd.Play(s.t, h.Root+"/run/systemd/private", systemd.Options{Job: func(call string, command []string) string {
		switch call {
		case "StartTransientUnit cvo-node-apply.service fail":
			h.beforeService()
			if err := h.command(command).Run(); err != nil {
				h.t.Error(err)
			}
		case "RestartUnit " + config.GuardUnit + " replace":
			_, err := os.Stat(h.Root + guardFile)
			if _, motd := os.Stat(h.Root + "/etc/motd"); err != nil || !errors.Is(motd, os.ErrNotExist) {
				h.t.Errorf("the guard must be enabled before the first write: %v, %v", err, motd)
			}
		case "StartUnit reboot.target replace-irreversibly":
			h.reboots <- struct{}{}
		}
		return "done"
	}})
	return h
}

// command returns a process of the host.
func (h *playedHost) command(command []string) *exec.Cmd {
	service := exec.Command(h.Root+command[0], append([]string{command[1], "--root", h.Root}, command[2:]...)...)
	service.Env = append(os.Environ(), processVariable+"=cvo-node")
	service.Stdout, service.Stderr = h.t.Output(), h.t.Output()
	service.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return service
}

// guard returns the guard that systemd starts at boot.
func (h *playedHost) guard() *exec.Cmd {
	h.t.Helper()
	unit, err := os.ReadFile(h.Root + guardFile)
	require.NoError(h.t, err)
	command := regexp.MustCompile(`(?m)^ExecStart="(.*)"$`).FindStringSubmatch(string(unit))
	require.NotNil(h.t, command)
	return h.command(strings.Split(command[1], `" "`))
}

// TestServiceOfTheHostMakesTheChange ends the daemon while the service runs, and after the request of a reboot. The service is the program that the
// daemon has copied to the host.
func TestServiceOfTheHostMakesTheChange(t *testing.T) {
	s := prepare(t, "n1")
	h := s.playHost("n1")
	begun, resume := make(chan struct{}, 1), make(chan struct{})
	h.beforeService = sync.OnceFunc(func() { begun <- struct{}{}; <-resume })
	s.controller("1.0.0")
	stop := s.daemon("n1", "1.0.0")
	s.config("00-worker", map[string]string{"/etc/motd": "hello"})
	<-begun
	stop()
	close(resume)
	<-h.reboots
	stop = s.daemon("n1", "1.0.0")
	s.eventually(func(c *assert.CollectT) { // the daemon of the same boot reports the reboot, and requests it again
		m := &mcfgv1.MachineConfigNode{}
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: "n1"}, m))
		assert.True(c, meta.IsStatusConditionPresentAndEqual(m.Status.Conditions, "RebootedNode", metav1.ConditionUnknown))
	})
	<-h.reboots
	assert.Empty(t, s.node("n1").Annotations[api.CurrentConfigAnnotation])
	assert.FileExists(t, h.Root+"/etc/motd")
	assert.FileExists(t, h.Root+guardFile)

	stop()
	h.Boot()
	s.daemon("n1", "1.0.0")
	s.updated("")
	assert.NoFileExists(t, h.Root+guardFile)
	assert.Equal(t, []string{
		"StartTransientUnit cvo-node-apply.service fail", "Reload", "RestartUnit cvo-node-guard.service replace",
		"StartUnit reboot.target replace-irreversibly",
	}, h.systemd.Calls()[:4])
}

// TestGuardReturnsTheNode has a config after which a file is wrong. The guard restores the former state while the daemon does not run. An administrator
// then has the config tried again, and it works.
func TestGuardReturnsTheNode(t *testing.T) {
	s := prepare(t, "n1")
	h := s.playHost("n1")
	s.controller("1.0.0")
	stop := s.run("daemon", "--release-version", "1.0.0", "--node", "n1", "--root", h.Root, "--boot-deadline", "1ns", "--kubelet-health", "")
	s.config("00-worker", map[string]string{"/etc/motd": "hello"})
	<-h.reboots
	stop()
	h.Boot()
	h.Write("/etc/motd", "broken by another process")
	guard := h.guard()
	require.NoError(t, guard.Start())
	<-h.reboots
	require.NoError(t, guard.Process.Kill()) // by the reboot
	require.Error(t, guard.Wait())
	h.Boot()
	require.NoError(t, h.guard().Run())
	assert.NoFileExists(t, h.Root+"/etc/motd")
	assert.NoFileExists(t, h.Root+guardFile)

	stop = s.daemon("n1", "1.0.0")
	s.eventually(func(c *assert.CollectT) {
		n := s.node("n1")
		assert.Equal(c, api.NodeDegraded, n.Annotations[api.NodeStateAnnotation])
		assert.Contains(c, n.Annotations[api.NodeReasonAnnotation], "the node returned to its former config: a check failed")
		assert.False(c, n.Spec.Unschedulable)
	})

	s.cvo("", "nodes", "retry", "n1")
	<-h.reboots
	stop()
	h.Boot()
	s.daemon("n1", "1.0.0")
	s.updated("")
	assert.FileExists(t, h.Root+"/etc/motd")
}
