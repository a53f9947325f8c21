package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/examples/operator/pod"
	"github.com/cluster-version/cvo/examples/operator/switches"
	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/test/env"
)

var control *env.Env

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	env.Main(m, env.Options{}, func(e *env.Env) { control = e })
}

// platform is the example platform in a cluster without kubelets. Its objects exist, and its programs run in this process,
// each with the arguments of its manifest and as the service account that its manifest names.
type platform struct {
	t       *testing.T
	client  client.Client
	version string
	pods    map[string]template
}

// template is the template of a workload's pods.
type template struct {
	namespace string
	spec      corev1.PodSpec
}

// install creates the objects of a version of the platform.
func install(t *testing.T, version string) *platform {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, configv1.Install(scheme))
	c, err := client.New(control.For(t).Config("test"), client.Options{Scheme: scheme})
	require.NoError(t, err)
	p := &platform{t: t, client: c, version: version, pods: map[string]template{}}
	data, err := fs.ReadFile(manifests.FS(), "0000_00_cluster-version-operator_01_clusteroperators.crd.yaml")
	require.NoError(t, err)
	p.create(string(data))
	files, err := filepath.Glob(filepath.Join("../platform", version, "*", "*.yaml"))
	require.NoError(t, err)
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(releaseName(a), releaseName(b)) })
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		text := strings.NewReplacer("0.0.1-snapshot-cni", "1.5.1", "0.0.1-snapshot", version).Replace(string(data))
		for document := range strings.SplitSeq(text, "\n---\n") {
			p.create(document)
		}
	}
	return p
}

// releaseName returns the name of a file in a release, which determines its order.
func releaseName(file string) string {
	name := filepath.Base(file)
	if strings.HasPrefix(name, "0000_") {
		return name
	}
	return "0000_50_" + filepath.Base(filepath.Dir(file)) + "_" + name
}

// create creates an object as soon as its kind is served, and remembers the programs in its pods.
func (p *platform) create(document string) {
	p.t.Helper()
	obj := &unstructured.Unstructured{}
	require.NoError(p.t, yaml.Unmarshal([]byte(document), &obj.Object))
	if _, deleted := obj.GetAnnotations()["release.openshift.io/delete"]; deleted {
		return
	}
	require.Eventually(p.t, func() bool {
		err := p.client.Create(p.t.Context(), obj.DeepCopy())
		if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			require.NoError(p.t, err, obj.GetName())
		}
		return err == nil
	}, time.Minute, 50*time.Millisecond)
	if spec, found, _ := unstructured.NestedMap(obj.Object, "spec", "template", "spec"); found {
		remembered := template{namespace: obj.GetNamespace()}
		require.NoError(p.t, runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &remembered.spec))
		p.pods[obj.GetNamespace()+"/"+obj.GetName()] = remembered
	}
}

// run runs the program of a workload until the context ends, and returns its error.
func (p *platform) run(ctx context.Context, t *testing.T, name string, more ...string) error {
	t.Helper()
	return p.command(t, name, more...)(ctx)
}

// command prepares to run the program of a workload.
func (p *platform) command(t *testing.T, name string, more ...string) func(context.Context) error {
	t.Helper()
	workload, found := p.pods[name]
	require.True(t, found, name)
	user := "system:serviceaccount:" + workload.namespace + ":" + workload.spec.ServiceAccountName
	config, err := control.For(t).User(user, "system:serviceaccounts")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			"u": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData},
		},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, file))
	container := workload.spec.Containers[0]
	var variables []string
	for _, e := range container.Env {
		variables = append(variables, "$("+e.Name+")", e.Value)
	}
	var args []string
	for _, arg := range container.Args {
		arg = strings.NewReplacer(variables...).Replace(arg)
		if strings.HasPrefix(arg, "--config=") {
			arg = "--config=" + t.TempDir()
		}
		if strings.HasPrefix(arg, "--listen=") || strings.HasPrefix(arg, "--address=") {
			continue // all programs share one network here
		}
		args = append(args, arg)
	}
	args = append(args, "--version="+p.version, "--kubeconfig="+file)
	switch args[0] {
	case "operator", "agent":
		args = append(args, "--listen=")
	case "serve":
		args = append(args, "--listen=", "--address=127.0.0.1:0")
	}
	cmd := newCommand()
	cmd.SetArgs(append(args, more...))
	return cmd.ExecuteContext
}

// start runs programs in the background. The test fails if one of them ends early.
func (p *platform) start(names ...string) {
	p.t.Helper()
	ctx, stop := context.WithCancel(p.t.Context())
	ended := make(chan error, len(names))
	for _, name := range names {
		run := p.command(p.t, name)
		go func() {
			err := run(ctx)
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
			ended <- err
		}()
	}
	p.t.Cleanup(func() {
		stop()
		for range names {
			assert.NoError(p.t, <-ended)
		}
	})
}

// rollOut marks a workload as rolled out, as its controller would.
func (p *platform) rollOut() {
	p.t.Helper()
	deployments, daemons, stateful := &appsv1.DeploymentList{}, &appsv1.DaemonSetList{}, &appsv1.StatefulSetList{}
	for _, list := range []client.ObjectList{deployments, daemons, stateful} {
		require.NoError(p.t, p.client.List(p.t.Context(), list))
	}
	for _, d := range deployments.Items {
		n := ptr.Deref(d.Spec.Replicas, 1)
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
		require.NoError(p.t, p.client.Status().Update(p.t.Context(), &d))
	}
	for _, d := range daemons.Items {
		d.Status = appsv1.DaemonSetStatus{
			ObservedGeneration: d.Generation, DesiredNumberScheduled: 3, CurrentNumberScheduled: 3, UpdatedNumberScheduled: 3,
			NumberReady: 3, NumberAvailable: 3,
		}
		require.NoError(p.t, p.client.Status().Update(p.t.Context(), &d))
	}
	for _, s := range stateful.Items {
		n := ptr.Deref(s.Spec.Replicas, 1)
		s.Status = appsv1.StatefulSetStatus{ObservedGeneration: s.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
		require.NoError(p.t, p.client.Status().Update(p.t.Context(), &s))
	}
}

// awaitOperator waits until a ClusterOperator reports the wanted state.
func (p *platform) awaitOperator(t *testing.T, name, what string, wanted func(*configv1.ClusterOperator) bool) {
	t.Helper()
	co := &configv1.ClusterOperator{}
	if !assert.Eventually(t, func() bool {
		return p.client.Get(t.Context(), client.ObjectKey{Name: name}, co) == nil && wanted(co)
	}, time.Minute, 50*time.Millisecond, "waiting for %s %s", name, what) {
		status, _ := json.Marshal(co.Status)
		require.FailNow(t, "the last status", string(status))
	}
}

// hasCondition reports whether a ClusterOperator has a condition, given as Type=Status and the beginning of its reason.
func hasCondition(condition, reason string) func(*configv1.ClusterOperator) bool {
	return func(co *configv1.ClusterOperator) bool {
		return slices.ContainsFunc(co.Status.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool {
			return string(c.Type)+"="+string(c.Status) == condition && c.Reason == reason
		})
	}
}

func version(co *configv1.ClusterOperator) string {
	for _, v := range co.Status.Versions {
		if v.Name == "operator" {
			return v.Version
		}
	}
	return ""
}

// TestPlatformRunsWithItsPermissions runs every program of the platform with the permissions from its manifests.
func TestPlatformRunsWithItsPermissions(t *testing.T) {
	p := install(t, "1.1.0")
	require.NoError(t, p.run(t.Context(), t, "example-backup/example-backup-1.1.0"))
	t.Run("saves objects and prunes backups", p.testBackup)

	var staying []string
	for name, workload := range p.pods {
		if workload.spec.Containers[0].Args[0] != "backup" && name != crashing {
			staying = append(staying, name)
		}
	}
	assert.Len(t, staying, 14)
	p.start(staying...)
	operators := &configv1.ClusterOperatorList{}
	require.NoError(t, p.client.List(t.Context(), operators))
	require.Len(t, operators.Items, 9)
	p.awaitOperator(t, "example-dns", "to wait for its operand", hasCondition("Progressing=True", "RollingOut"))
	p.rollOut()
	for _, co := range operators.Items {
		p.awaitOperator(t, co.Name, "to report its version", func(co *configv1.ClusterOperator) bool {
			return version(co) == "1.1.0" && hasCondition("Available=True", "AsExpected")(co) && hasCondition("Degraded=False", "AsExpected")(co)
		})
	}
	p.awaitOperator(t, "example-network", "to report the version of cni", func(co *configv1.ClusterOperator) bool {
		return slices.Contains(co.Status.Versions, configv1.OperandVersion{Name: "cni", Version: "1.5.1"})
	})

	t.Run("follows the switches", p.testSwitches)
	t.Run("crashes if a switch says so", p.testCrash)
	t.Run("has all permissions that it needs", testPermissions)
}

// testPermissions looks for rejected requests.
func testPermissions(t *testing.T) {
	events, err := control.For(t).Audit()
	require.NoError(t, err)
	asked := 0
	for _, e := range events {
		if strings.HasPrefix(e.User, "system:serviceaccount:") {
			asked++
			assert.NotEqual(t, 403, e.Code, "%s: %s %s", e.User, e.Verb, e.URI)
		}
	}
	assert.Greater(t, asked, 50)
}

func (p *platform) testSwitches(t *testing.T) {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "example-dns", Name: switches.ConfigMap}}
	config.Data = map[string]string{"degraded": "true@1.1.0", "unavailable": "true@9.9.9"}
	require.NoError(t, p.client.Create(t.Context(), config))
	p.awaitOperator(t, "example-dns", "to be degraded", hasCondition("Degraded=True", "SetBySwitch"))
	p.awaitOperator(t, "example-dns", "to stay available", hasCondition("Available=True", "AsExpected"))
	p.awaitOperator(t, "example-identity", "to be unaffected", hasCondition("Degraded=False", "AsExpected"))

	config.Data = map[string]string{"unheard-of": "true"}
	require.NoError(t, p.client.Update(t.Context(), config))
	p.awaitOperator(t, "example-dns", "to report the invalid switch", hasCondition("Degraded=True", "InvalidSwitch"))

	require.NoError(t, p.client.Delete(t.Context(), config))
	p.awaitOperator(t, "example-dns", "to recover", hasCondition("Degraded=False", "AsExpected"))
}

// testCrash runs a program that a switch crashes.
func (p *platform) testCrash(t *testing.T) {
	ended := make(chan error, 1)
	run := p.command(t, crashing)
	go func() { ended <- run(t.Context()) }()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "example-console", Name: switches.ConfigMap}}
	config.Data = map[string]string{"example-console.crashLoop": "true"}
	require.NoError(t, p.client.Create(t.Context(), config))
	require.ErrorIs(t, <-ended, pod.ErrSwitchedOff)
	require.ErrorIs(t, p.run(t.Context(), t, crashing), pod.ErrSwitchedOff, "it crashes again")

	config.Data = map[string]string{}
	require.NoError(t, p.client.Update(t.Context(), config))
	require.ErrorIs(t, p.run(t.Context(), t, crashing, "--switch=example-console.crashLoop=true"), pod.ErrSwitchedOff)
	p.awaitOperator(t, "example-console", "to be healthy, because no switch applies to it", hasCondition("Degraded=False", "AsExpected"))
}

// crashing is the program that only testCrash runs.
const crashing = "example-console/example-console"

// testBackup checks the objects that the Job has saved, and reruns it until the oldest backup is deleted.
func (p *platform) testBackup(t *testing.T) {
	saved := &corev1.ConfigMap{}
	require.NoError(t, p.client.Get(t.Context(), client.ObjectKey{Namespace: "example-backup", Name: "before-1.1.0"}, saved))
	assert.Contains(t, saved.Data["platform.json"], `"clusterName":"example"`)
	assert.Contains(t, saved.Data["network.json"], `"mtu":1400`)
	require.NoError(t, p.run(t.Context(), t, "example-backup/example-backup-1.1.0"), "a pod may run again")

	for i := range 6 { // 1.1.0 keeps five
		require.NoError(t, p.run(t.Context(), t, "example-backup/example-backup-1.1.0", fmt.Sprintf("--to=zz-%d", i)))
	}
	list := &corev1.ConfigMapList{}
	require.NoError(t, p.client.List(t.Context(), list, client.InNamespace("example-backup"), client.HasLabels{"platform.example.com/backup"}))
	assert.Len(t, list.Items, 5)

	require.ErrorContains(t, p.run(t.Context(), t, "example-backup/example-backup-1.1.0", "--switch=example-backup.crashLoop=true"), "because of a switch")
}
