package integration_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/release"
)

// TestStatusReportsEachStage queries the rollout at each stage of an operator's life: before its first start, while it waits, when it is
// done, and after it was stopped.
func TestStatusReportsEachStage(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	own := p.push(newTiny(t).files("1.0.0"), "1.0.0", true)
	_, err := p.run("install", "--no-operator", "--release-image", own.ByDigest(), "--trust", p.trust)
	require.NoError(t, err)

	out, err := p.run("status")
	assert.Equal(t, command.ExitPartial, exitCode(t, err))
	require.ErrorContains(t, err, "none has ever run here (no Lease openshift-cluster-version/version)")
	assert.Contains(t, out, "Showing the ClusterVersion only")
	_, err = p.run("status", "-o", "json")
	assert.Equal(t, command.ExitPartial, exitCode(t, err))

	address := freeAddress(t)
	server := "https://" + address
	operator := p.operator(own.ByDigest(), "--listen", address)
	require.Eventually(t, func() bool {
		out, err = p.run("status", "--server", server)
		return err == nil && strings.Contains(out, "waiting on tiny-a, tiny-b\n")
	}, time.Minute, 200*time.Millisecond, "the tree shows the pending gates")
	assert.Contains(t, out, "Initializing  1.0.0")
	assert.Contains(t, out, "ClusterOperator.config.openshift.io tiny-a")
	assert.NotContains(t, out, "\x1b[", "no colors without a terminal")
	watched := p.start("cvo", "status", "--watch", "--server", server)
	watched.logged(t, "waiting on tiny-a, tiny-b")

	t.Run("requires permission to read the rollout", func(t *testing.T) { p.testStatusRole(t, server) })
	t.Run("never queries without TLS", func(t *testing.T) {
		_, err := p.run("status", "--server", "http://"+address)
		assert.Equal(t, command.ExitUsage, exitCode(t, err))
	})
	t.Run("suggests another address", func(t *testing.T) {
		_, err := p.run("status", "--server", "https://"+freeAddress(t))
		assert.Equal(t, command.ExitPartial, exitCode(t, err))
		require.ErrorContains(t, err, "the leading operator cannot be reached")
	})

	p.start("operators")
	p.await("1.0.0 to complete", time.Minute, at("1.0.0"))
	var account report.Snapshot
	require.Eventually(t, func() bool {
		out, err = p.run("status", "--server", server, "-o", "json")
		return err == nil && json.Unmarshal([]byte(out), &account) == nil && account.Progress.Complete
	}, time.Minute, 200*time.Millisecond)
	assert.Equal(t, release.Reconciling, account.Progress.Mode)
	assert.NotEmpty(t, account.OperatorVersion)
	watched.logged(t, "waiting on nothing: every manifest is applied and every gate is met")

	t.Run("shows a rejected request", func(t *testing.T) {
		unsigned := p.push(newTiny(t).files("1.0.1"), "1.0.1", false)
		p.update(configv1.Update{Image: unsigned.ByDigest()})
		p.await("the request to be rejected", time.Minute, says(api.ReleaseAccepted, "False|"))
		watched.logged(t, "requested release rejected: Retrieving payload failed")
		out, err := p.run("status", "--server", server)
		require.NoError(t, err)
		assert.Contains(t, out, "\nRequested release rejected: Retrieving payload failed version=\"\" image=\""+unsigned.ByDigest())
		out, err = p.run("upgrade", "status")
		require.NoError(t, err)
		assert.Equal(t, "The cluster is not updating.\n", out)

		absent := release.Image{Pullspec: unsigned.Pullspec, Digest: release.Digest("sha256:" + strings.Repeat("0", 64))}
		p.update(configv1.Update{Image: absent.ByDigest()})
		p.await("the missing image to be reported", time.Minute, func(cv *configv1.ClusterVersion) bool {
			return strings.Contains(condition(cv, api.ReleaseAccepted), "the image does not exist: ")
		})
	})

	t.Run("warns of an update of which the cluster gets nothing", func(t *testing.T) {
		files := newTiny(t).files("1.0.2").(fstest.MapFS)
		for name, file := range files {
			if strings.HasSuffix(name, ".yaml") {
				file.Data = bytes.ReplaceAll(file.Data, []byte("self-managed-high-availability"), []byte("edge"))
				files[name] = file
			}
		}
		p.update(configv1.Update{Image: p.push(files, "1.0.2", true).ByDigest()})
		const nothing = "none of the 10 manifests of release 1.0.2 is for this cluster: no annotation include.release.openshift.io/self-managed-high-availability (10)"
		cv := p.await("1.0.2 to complete", time.Minute, at("1.0.2"))
		assert.Contains(t, condition(cv, api.ReleaseAccepted), "; warning: "+nothing)
		watched.logged(t, "Reconciling 1.0.2: 0 of 0 manifests done")
		out, err := p.run("status", "--server", server)
		require.NoError(t, err)
		assert.Contains(t, out, "\nThe cluster gets no component: none of the 10 manifests")
		out, err = p.run("upgrade", "status", "-o", "json")
		require.NoError(t, err)
		assert.Contains(t, out, `"The cluster gets no component of release 1.0.2"`)
		assert.Contains(t, out, nothing)
	})

	operator.end(t)
	out, err = p.run("status", "--server", server)
	assert.Equal(t, command.ExitPartial, exitCode(t, err))
	require.ErrorContains(t, err, "the version operator is not running: Lease openshift-cluster-version/version was released")
	assert.Contains(t, out, "Completed  1.0.2")
	watched.logged(t, "warning: ")
	require.NoError(t, watched.signal(os.Interrupt))
	assert.Zero(t, watched.exitCode(), "an interrupt ends the watch successfully")
}

// testStatusRole applies the role that a release contains.
func (p *platform) testStatusRole(t *testing.T, server string) {
	user, err := p.env.User("vera")
	require.NoError(t, err)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: user.Host, CertificateAuthorityData: user.CAData}
	config.AuthInfos["vera"] = &clientcmdapi.AuthInfo{ClientCertificateData: user.CertData, ClientKeyData: user.KeyData}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "vera"}
	config.CurrentContext = "c"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, kubeconfig))
	status := func() (string, error) { return p.run("status", "--kubeconfig", kubeconfig, "--server", server) }

	_, err = status()
	assert.Equal(t, command.ExitFailed, exitCode(t, err), "neither Lease nor ClusterVersion can be read")
	require.ErrorContains(t, err, "ask an administrator for ClusterRole cluster-version-operator-viewer")

	p.create("../../manifests/0000_00_cluster-version-operator_03_roles.yaml")
	rbac := kubernetes.NewForConfigOrDie(p.env.Config("integration")).RbacV1()
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "vera"}}
	_, err = rbac.RoleBindings(api.OperatorNamespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "vera"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "cluster-version-operator-viewer"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err = status()
		return err != nil && strings.Contains(err.Error(), `"vera" may not get /debug/rollout: bind a ClusterRole`)
	}, time.Minute, 200*time.Millisecond, "%v", err)

	_, err = rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "vera"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-version-operator-viewer"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		out, err := status()
		return err == nil && strings.Contains(out, "waiting on tiny-a, tiny-b")
	}, time.Minute, 500*time.Millisecond)
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	return exit.ExitCode()
}
