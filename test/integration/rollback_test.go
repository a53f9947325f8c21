package integration_test

import (
	"os/exec"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/release"
)

// TestRollbackRefusesAnEarlierStorageVersion updates twice. The second release stores a version of a CRD that the first ones lack.
func TestRollbackRefusesAnEarlierStorageVersion(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	push := func(version, versions string) release.Image {
		return l.special(version, fstest.MapFS{"release-manifests/0000_30_lab_01.yaml": {Data: []byte(widgetDefinition + versions)}})
	}
	const open = "schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}\n"
	const before = "  - {name: v1beta1, served: true, storage: true, " + open
	const after = "  - {name: v1beta1, served: true, storage: false, " + open + "  - {name: v1, served: true, storage: true, " + open
	l.own = push("4.2.0", before)
	l.install("4.2.0")
	update := func(version, versions string) release.Image {
		next := push(version, versions)
		l.update(configv1.Update{Image: next.ByDigest()})
		l.await(version+" to complete", time.Minute, completed(version))
		return next
	}
	update("4.2.1", before)
	_, warnings, err := l.outputs("upgrade", "rollback", "--dry-run")
	require.NoError(t, err)
	assert.Empty(t, warnings)

	newest := update("4.2.2", after)
	const finding = "CustomResourceDefinition.apiextensions.k8s.io widgets.example.com  0000_30_lab_01.yaml\n  refused: status.storedVersions"
	const remedy = "remedy: the cluster stores the objects as v1: keep this version in spec.versions of the release with served: false"
	_, err = l.run("upgrade", "rollback")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, command.ExitRefused, exit.ExitCode())
	require.ErrorContains(t, err, "unable to rollback: the cluster would reject 1 manifest of 4.2.1:\n\n"+finding)
	require.ErrorContains(t, err, remedy)
	require.ErrorContains(t, err, "If you want to roll back anyway, use --allow-upgrade-with-warnings.")
	assert.Equal(t, newest.ByDigest(), l.get().Spec.DesiredUpdate.Image, "nothing is requested")

	out, warnings, err := l.outputs("upgrade", "rollback", "--allow-upgrade-with-warnings", "--dry-run")
	require.NoError(t, err)
	assert.Contains(t, out, "Requested rollback from 4.2.2 to 4.2.1")
	assert.Contains(t, warnings, "warning: --allow-upgrade-with-warnings is bypassing: the cluster would reject 1 manifest of 4.2.1")
	assert.Contains(t, warnings, finding)
}
