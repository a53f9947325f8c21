package integration_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// TestStatus asks for the rollout at every turn of an operator's life: before it ever ran, while it waits, when it is
// done, and after it was stopped.
func TestStatus(t *testing.T) {
	p := newPlatform(t)
	own := p.push(newTiny(t).files("1.0.0"), "1.0.0", true)
	_, err := p.run("install", "--no-operator", "--release-image", own.ByDigest(), "--trust", p.trust)
	require.NoError(t, err)

	out, err := p.run("status")
	assert.Equal(t, cli.ExitPartial, exitCode(t, err))
	require.ErrorContains(t, err, "nobody ever held Lease openshift-cluster-version/version")
	assert.Contains(t, out, "This is what the ClusterVersion says")
	_, err = p.run("status", "-o", "json")
	assert.Equal(t, cli.ExitPartial, exitCode(t, err))

	address := freeAddress(t)
	server := "https://" + address
	operator := p.operator(own.ByDigest(), "--listen", address)
	require.Eventually(t, func() bool {
		out, err = p.run("status", "--server", server)
		return err == nil && strings.Contains(out, "waiting on tiny-a, tiny-b\n")
	}, time.Minute, 200*time.Millisecond, "the tree shows what is waited for")
	assert.Contains(t, out, "Initializing  1.0.0")
	assert.Contains(t, out, "ClusterOperator.config.openshift.io tiny-a")
	assert.NotContains(t, out, "\x1b[", "this is no terminal")
	watched := p.start("cvo", "status", "--watch", "--server", server)
	watched.logged(t, "waiting on tiny-a, tiny-b")

	t.Run("is for those who may see it", func(t *testing.T) { p.testStatusRole(t, server) })
	t.Run("is never asked without TLS", func(t *testing.T) {
		_, err := p.run("status", "--server", "http://"+address)
		assert.Equal(t, cli.ExitUsage, exitCode(t, err))
	})
	t.Run("says that the address may be another", func(t *testing.T) {
		_, err := p.run("status", "--server", "https://"+freeAddress(t))
		assert.Equal(t, cli.ExitPartial, exitCode(t, err))
		require.ErrorContains(t, err, "the operator leads but cannot be reached")
	})

	p.start("operators")
	p.await("1.0.0 to complete", time.Minute, at("1.0.0"))
	var account rollout.Snapshot
	require.Eventually(t, func() bool {
		out, err = p.run("status", "--server", server, "-o", "json")
		return err == nil && json.Unmarshal([]byte(out), &account) == nil && account.Progress.Complete
	}, time.Minute, 200*time.Millisecond)
	assert.Equal(t, release.Reconciling, account.Progress.Mode)
	watched.logged(t, "waiting on nothing: every manifest is applied and every gate is met")

	require.NoError(t, operator.Process.Signal(syscall.SIGTERM))
	<-operator.exited
	out, err = p.run("status", "--server", server)
	assert.Equal(t, cli.ExitPartial, exitCode(t, err))
	require.ErrorContains(t, err, "the version operator is not running: Lease openshift-cluster-version/version was given back")
	assert.Contains(t, out, "Completed  1.0.0")
	watched.logged(t, "warning: ")
	require.NoError(t, watched.Process.Signal(os.Interrupt))
	<-watched.exited
	assert.Zero(t, watched.ProcessState.ExitCode(), "an interrupt is how watching ends")
}

// testStatusRole applies the role that a release brings.
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
	assert.Equal(t, cli.ExitFailed, exitCode(t, err), "neither Lease nor ClusterVersion can be read")
	require.ErrorContains(t, err, "the role cluster-version-operator-viewer lets you")

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
