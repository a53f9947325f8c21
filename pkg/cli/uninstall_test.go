package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/test/env"
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
	assert.Regexp(t, `\nWould remove the version operator from https?://\S+: objects to delete [1-9]\d*, to keep \d+\.\n$`, out)
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
	e := env.New(t, env.Options{Audit: env.AuditNone})
	for _, mode := range []string{"--dry-run", "--yes"} {
		out, errs, err := runCvo(t, "uninstall", "--kubeconfig", e.Kubeconfig, mode)
		require.NoError(t, err, errs)
		assert.Regexp(t, `^Found nothing of the version operator in https://\S+\.\n$`, out)
	}
	_, err := kubernetes.NewForConfigOrDie(e.Config("tests")).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{api.OwnedByLabel: "version"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	out, errs, err := runCvo(t, "uninstall", "--kubeconfig", e.Kubeconfig, "--with-platform", "--yes")
	require.NoError(t, err, errs)
	assert.Regexp(t, `\nRemoved the version operator and the whole platform from https://\S+: objects deleted 1, kept 0\.\n$`, out)
}
