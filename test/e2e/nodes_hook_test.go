package e2e

import (
	"encoding/base64"
	"fmt"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// hookScript keeps what the next boot gets in a file, because a container has no kernel of its own.
const hookScript = `#!/bin/sh
case $1 in
apply | rollback) cat >/var/lib/cvo-e2e-next ;;
booted) cat /run/cvo-e2e-booted 2>/dev/null || echo {} ;;
esac
`

// bootUnit takes over at boot what the hook has kept.
const bootUnit = "[Unit]\nDefaultDependencies=no\nRequiresMountsFor=/var/lib /run\n[Service]\nType=oneshot\n" +
	"ExecStart=/bin/cp /var/lib/cvo-e2e-next /run/cvo-e2e-booted\n[Install]\nWantedBy=sysinit.target\n"

// testNodeHook has a config with a kernel argument and the hook that sets it. The deletion of the config takes both away.
func testNodeHook(t *testing.T, s *site) {
	n := withNodeStage(t, s)
	const name = "58-e2e-hook"
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.MachineConfigRoleLabel: api.WorkerPool}}}
	mc.Spec.KernelArguments = []string{"quiet"}
	mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},
		"storage":{"files":[{"path":"/etc/cvo-node/hook","mode":493,"contents":{"source":"data:;base64,%s"}}]},
		"systemd":{"units":[{"name":"cvo-e2e-boot.service","enabled":true,"contents":%q}]}}`,
		base64.StdEncoding.EncodeToString([]byte(hookScript)), bootUnit)
	before := n.boots()
	n.rendered(func() { n.replace(mc) })
	n.updated()
	n.rebooted(before, n.Workers...)
	for _, worker := range n.Workers {
		assert.JSONEq(t, `{"kernelArguments":["quiet"]}`, n.on(worker, "/etc/cvo-node/hook booted"), worker)
		require.NoError(t, n.unguarded(worker))
	}

	before = n.boots()
	n.remove(name)
	n.updated()
	n.rebooted(before, n.Workers...)
	for _, worker := range n.Workers {
		assert.JSONEq(t, `{"kernelArguments":[]}`, n.on(worker, "cat /var/lib/cvo-e2e-next"), worker)
		assert.Equal(t, "gone", n.on(worker, "ls /etc/cvo-node/hook /var/lib/cvo-node/former 2>/dev/null || echo gone"), worker)
	}
}
