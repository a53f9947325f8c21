package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/install"
)

func TestUninstallRefuses(t *testing.T) {
	for _, tt := range []struct {
		args, want string
		code       int
	}{
		{"--delete-data", "add --with-platform", ExitUsage},
		{"--timeout=-1s", "it is over before it begins", ExitUsage},
		{"-o table", "unknown output", ExitUsage},
	} {
		t.Run("it refuses "+tt.args, func(t *testing.T) {
			_, _, err := runCvo(t, append([]string{"uninstall"}, strings.Fields(tt.args)...)...)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, tt.code, ExitCode(err))
		})
	}
}

func TestUninstallAsks(t *testing.T) {
	b := newBare(t)
	img := b.signed(t, "1.0.0")
	_, errs, err := b.run(t, img, "--wait=none")
	require.NoError(t, err, errs)

	_, _, err = runCvo(t, "uninstall", "--kubeconfig", b.env.Kubeconfig)
	require.ErrorContains(t, err, "add --yes")
	assert.Equal(t, ExitRefused, ExitCode(err))

	out, errs, err := runCvo(t, "uninstall", "--kubeconfig", b.env.Kubeconfig, "--dry-run")
	require.NoError(t, err, errs)
	assert.Contains(t, out, "ClusterVersion version would be deleted\n")
	assert.Contains(t, out, "Namespace openshift-cluster-version would be deleted\n")
	assert.NotContains(t, out, "clusteroperators")
	deployment := &appsv1.Deployment{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: api.OperatorNamespace, Name: install.Operator}, deployment))
	assert.Positive(t, *deployment.Spec.Replicas)

	// Nobody collects garbage here, so the deletion that orphans does not end.
	_, errs, err = runCvo(t, "uninstall", "--kubeconfig", b.env.Kubeconfig, "--yes", "--timeout=5s")
	assert.Equal(t, ExitUpdating, ExitCode(err), errs)
	assert.Contains(t, errs, "error: not done within 5s: ")
}
