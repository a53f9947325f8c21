package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/installed"
)

func TestUninstallRejectsWrongArguments(t *testing.T) {
	for _, tt := range []struct {
		args, want string
		code       int
	}{
		{"--delete-data", "requires --with-platform", command.ExitUsage},
		{"--namespace=", "--namespace and --name must not be empty", command.ExitUsage},
		{"--name=", "--namespace and --name must not be empty", command.ExitUsage},
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

// usersObjects is the line about the operator's namespace after testDryRunDuringRollout has created an object in it.
const usersObjects = "Namespace openshift-cluster-version would be deleted: objects in it that no release contains: ConfigMap 1\n"

// testDryRunDuringRollout also asks for confirmation during the rollout, and after it.
func (b *bare) testDryRunDuringRollout(t *testing.T) {
	require.NoError(t, b.client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: api.OperatorNamespace, Name: "of-a-user"}}))
	const rollout = "release 1.0.0 is being rolled out and would stay incomplete: wait for it with 'cvo upgrade wait', or use --force"
	end := sync.OnceFunc(b.rollsOut(t))
	defer end()

	out, errs, err := runCvo(t, "uninstall", "--kubeconfig", b.env.Kubeconfig, "--dry-run")
	require.NoError(t, err, errs)
	assert.Contains(t, out, usersObjects)
	assert.Equal(t, "warning: without --dry-run, this uninstall would be refused: "+rollout+"\n", errs)

	out, errs, err = runCvo(t, "uninstall", "--kubeconfig", b.env.Kubeconfig, "--dry-run", "-o", "json")
	require.NoError(t, err, errs)
	var report struct {
		Objects []target.Result
		Refusal string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	assert.NotEmpty(t, report.Objects)
	assert.Equal(t, rollout, report.Refusal)

	t.Run("asks only after the rollout", func(t *testing.T) {
		_, err := answer(t.Context(), t, "no\n", "uninstall", "--kubeconfig", b.env.Kubeconfig)
		require.ErrorContains(t, err, rollout)
		assert.Equal(t, command.ExitRefused, command.ExitCode(err))
		end()
		errs, err := answer(t.Context(), t, "", "uninstall", "--kubeconfig", b.env.Kubeconfig)
		assert.Equal(t, command.ExitInterrupted, command.ExitCode(err))
		assert.Regexp(t, "Type yes to continue: \nerror: interrupted: nothing was changed\n$", errs)
		errs, err = answer(t.Context(), t, "no\n", "uninstall", "--kubeconfig", b.env.Kubeconfig)
		require.ErrorContains(t, err, "not confirmed: nothing was changed")
		assert.Regexp(t, "^warning: "+usersObjects+"Remove the version operator from https?://\\S+\\? Type yes to continue: $", errs)
	})
}

// rollsOut reports a rollout in the status, until the returned function is called.
func (b *bare) rollsOut(t *testing.T) (end func()) {
	t.Helper()
	set := func(history ...configv1.UpdateHistory) {
		cv := &configv1.ClusterVersion{}
		require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
		cv.Status = configv1.ClusterVersionStatus{VersionHash: "x", History: history}
		require.NoError(t, b.client.Status().Update(t.Context(), cv))
	}
	set(configv1.UpdateHistory{State: configv1.PartialUpdate, Version: "1.0.0", StartedTime: metav1.Now()})
	return func() { set() }
}

// testConfirmation confirms an uninstall that does not finish: no garbage collector runs here to complete the orphaning deletion.
func (b *bare) testConfirmation(t *testing.T) {
	_, _, err := runCvo(t, "uninstall", "--kubeconfig", b.env.Kubeconfig)
	require.ErrorContains(t, err, "add --yes")
	assert.Equal(t, command.ExitRefused, command.ExitCode(err))

	_, errs, err := runCvo(t, "uninstall", "--kubeconfig", b.env.Kubeconfig, "--yes", "--timeout=1s")
	assert.Equal(t, command.ExitUpdating, command.ExitCode(err), errs)
	assert.Contains(t, errs, "error: not done within 1s: ")

	require.NoError(t, b.client.Create(t.Context(), installed.Lease("", 1)))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	said := &interrupting{at: "waiting for the deletion of ClusterVersion", interrupt: interrupt}
	cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: io.Discard, Err: said})
	cmd.SetArgs([]string{"uninstall", "--kubeconfig", b.env.Kubeconfig, "--yes"})
	assert.Equal(t, command.ExitInterrupted, command.ExitCode(cmd.ExecuteContext(ctx)), said.String())
	assert.Contains(t, said.String(), "waiting for the deletion of ClusterVersion version (finalizers orphan (kube-controller-manager removes it))\n")
	assert.Contains(t, said.String(), "warning: "+usersObjects)
	assert.Contains(t, said.String(), "info: no operator runs in the cluster, but one outside it may resume; the ClusterVersion is deleted or being deleted, ")
	assert.Contains(t, said.String(), "'cvo uninstall --kubeconfig "+b.env.Kubeconfig+"' continues, and 'cvo install' restores deleted objects")

	t.Setenv("CVO_NAMESPACE", "ops")
	_, errs, err = runCvo(t, "upgrade", "--kubeconfig", b.env.Kubeconfig)
	require.NoError(t, err)
	assert.Contains(t, errs, "'cvo uninstall --namespace ops' finishes it", "a variable of this shell may be missing in the next one")

	t.Setenv("CVO_NAMESPACE", "")
	const unfinished = "the version operator is not running: Lease openshift-cluster-version/version was released by 'cvo uninstall', which did not finish "
	out, _, err := runCvo(t, "status", "--kubeconfig", b.env.Kubeconfig)
	assert.Contains(t, out, "ClusterVersion version is being deleted")
	require.ErrorContains(t, err, unfinished)
	cv := &configv1.ClusterVersion{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
	cv.Finalizers = nil
	require.NoError(t, b.client.Update(t.Context(), cv))
	_, _, err = runCvo(t, "status", "--kubeconfig", b.env.Kubeconfig)
	require.ErrorContains(t, err, "this cluster has no ClusterVersion: "+unfinished)
	require.ErrorContains(t, err, "ago: run 'cvo uninstall' with the flags of the first run to finish the uninstall, or 'cvo install' to restore deleted objects")
}

// interrupting is the stderr of a command that is interrupted once it has printed a text.
type interrupting struct {
	bytes.Buffer

	at        string
	interrupt func()
}

func (i *interrupting) Write(p []byte) (int, error) {
	if strings.Contains(string(p), i.at) {
		i.interrupt()
	}
	return i.Buffer.Write(p)
}

// TestUninstallEndsBeforeTheQuestion uses an API server that accepts connections and does not respond, so the question never appears.
func TestUninstallEndsBeforeTheQuestion(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var interrupts atomic.Bool
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if interrupts.Load() {
			interrupt()
		}
		<-r.Context().Done()
	}))
	defer silent.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"silent": {Server: silent.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"silent": {Cluster: "silent"}},
		CurrentContext: "silent",
	}, kubeconfig))

	errs, err := answer(ctx, t, "yes\n", "uninstall", "--kubeconfig", kubeconfig, "--timeout=100ms")
	assert.Equal(t, command.ExitUpdating, command.ExitCode(err), errs)
	assert.Regexp(t, "^error: not done within 100ms: .*\n$", errs)

	interrupts.Store(true)
	errs, err = answer(ctx, t, "yes\n", "uninstall", "--kubeconfig", kubeconfig)
	assert.Equal(t, command.ExitInterrupted, command.ExitCode(err), errs)
	assert.Regexp(t, "^error: interrupted: .*\n$", errs)
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
	for name, state := range map[string]string{"changed": api.NodeDone, "released": api.NodeReleased} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{api.NodeStateAnnotation: state}}}
		_, err := kubernetes.NewForConfigOrDie(e.Config("tests")).CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	out, errs, err := runCvo(t, "uninstall", "--kubeconfig", e.Kubeconfig, "--with-platform", "--yes")
	require.NoError(t, err, errs)
	assert.Contains(t, errs, "warning: uninstalling leaves changes and files of the node stage on 1 node (changed): run 'cvo nodes release --all' first\n")
	assert.Regexp(t, `\nRemoved the version operator and the whole platform from https://\S+: objects deleted 1, kept 0\.\n$`, out)
}
