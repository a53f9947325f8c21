package cli

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

func TestUninstallAsksForConfirmation(t *testing.T) {
	b := newBare(t)
	img := b.signed(t, "1.0.0")
	_, errs, err := b.run(t, img, "--wait=none")
	require.NoError(t, err, errs)

	_, _, err = runCvo(t, "uninstall", "--kubeconfig", b.env.Kubeconfig)
	require.ErrorContains(t, err, "add --yes")
	assert.Equal(t, command.ExitRefused, command.ExitCode(err))

	out, errs, err := runCvo(t, "uninstall", "--kubeconfig", b.env.Kubeconfig, "--dry-run")
	require.NoError(t, err, errs)
	assert.Contains(t, out, "ClusterVersion version would be deleted\n")
	assert.Contains(t, out, "Namespace openshift-cluster-version would be deleted\n")
	assert.NotContains(t, out, "clusteroperators")
	deployment := &appsv1.Deployment{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: api.OperatorNamespace, Name: target.Operator}, deployment))
	assert.Positive(t, *deployment.Spec.Replicas)

	// No garbage collector runs here, so the orphaning deletion does not finish.
	_, errs, err = runCvo(t, "uninstall", "--kubeconfig", b.env.Kubeconfig, "--yes", "--timeout=5s")
	assert.Equal(t, command.ExitUpdating, command.ExitCode(err), errs)
	assert.Contains(t, errs, "error: not done within 5s: ")
}
