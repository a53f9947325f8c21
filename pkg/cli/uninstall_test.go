package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/install/target"
)

func TestUninstallRejectsWrongArguments(t *testing.T) {
	for _, tt := range []struct {
		args, want string
		code       int
	}{
		{"--delete-data", "requires --with-platform", command.ExitUsage},
		{"--timeout=-1s", "use a positive duration", command.ExitUsage},
		{"-o table", "unknown output", command.ExitUsage},
	} {
		t.Run("rejects "+tt.args, func(t *testing.T) {
			_, _, err := runCvo(t, append([]string{"uninstall"}, strings.Fields(tt.args)...)...)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, tt.code, command.ExitCode(err))
		})
	}
}

// testDryRun uses an unreliable connection. Package uninstall tests a whole uninstall with one.
func (b *bare) testDryRun(t *testing.T) {
	out, errs, err := runCvo(t, "uninstall", "--kubeconfig", b.unreliable(t), "--dry-run")
	require.NoError(t, err, errs)
	assert.Regexp(t, "info: the API server is unavailable: .*; trying again\n", errs)
	assert.Contains(t, out, "ClusterVersion version would be deleted\n")
	assert.Contains(t, out, "Namespace openshift-cluster-version would be deleted\n")
	assert.NotContains(t, out, "clusteroperators")
	deployment := &appsv1.Deployment{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: api.OperatorNamespace, Name: target.Operator}, deployment))
	assert.Positive(t, *deployment.Spec.Replicas)
}

// testConfirmation confirms an uninstall that does not finish: no garbage collector runs here to complete the orphaning deletion.
func (b *bare) testConfirmation(t *testing.T) {
	_, _, err := runCvo(t, "uninstall", "--kubeconfig", b.env.Kubeconfig)
	require.ErrorContains(t, err, "add --yes")
	assert.Equal(t, command.ExitRefused, command.ExitCode(err))

	_, errs, err := runCvo(t, "uninstall", "--kubeconfig", b.env.Kubeconfig, "--yes", "--timeout=1s")
	assert.Equal(t, command.ExitUpdating, command.ExitCode(err), errs)
	assert.Contains(t, errs, "error: not done within 1s: ")
}

func TestFinishedUninstallPrintsASummary(t *testing.T) {
	out, errs, err := runCvo(t, "uninstall", "--kubeconfig", withoutPlatform.For(t).Kubeconfig, "--yes")
	require.NoError(t, err, errs)
	assert.Regexp(t, `Removed the version operator from https://\S+: \d+ objects deleted, \d+ kept\.\n$`, out)
}
