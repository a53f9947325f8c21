package actor

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/test/env"
)

// TestRunReportsOperatorsAsDone plays operators for a client that acts like the version operator: it creates types, objects and new
// versions, and waits.
func TestRunReportsOperatorsAsDone(t *testing.T) {
	e := env.New(t, env.Options{Audit: env.AuditWrites})
	c := newClient(t, e)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, e.Config(""), Options{
			Fail: []string{"broken"}, Follow: []string{"silent"}, Ignore: []string{"ignored", "openshift-dns/ignored"},
		})
	}()

	t.Run("reports workloads as done", func(t *testing.T) { testWorkloads(t, c) })
	createTypes(t, c)
	t.Run("moves a ClusterOperator with its Deployment", func(t *testing.T) { testUpdate(t, c) })
	t.Run("reports a failure", func(t *testing.T) { testFailure(t, c) })
	t.Run("follows the ClusterVersion if configured", func(t *testing.T) { testFollow(t, c) })

	stop()
	require.NoError(t, <-done)
	writes, reads := footprint(t, e)
	assert.LessOrEqual(t, writes, 13, "one write for each of 6 workload reports and 5 ClusterOperator reports, and two conflicts")
	assert.LessOrEqual(t, reads, 40)
}

func testWorkloads(t *testing.T, c client.Client) {
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "openshift-dns"}})
	meta := metav1.ObjectMeta{Namespace: "openshift-dns", Name: "a", Labels: map[string]string{"app": "a"}}
	selector := &metav1.LabelSelector{MatchLabels: meta.Labels}
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels}, Spec: podSpec("")}
	jobPod := corev1.PodTemplateSpec{Spec: podSpec("")}
	jobPod.Spec.RestartPolicy = corev1.RestartPolicyNever

	daemons := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: pod}}
	stateful := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: pod}}
	job := &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: jobPod}}
	for _, object := range []client.Object{daemons, stateful, job} {
		create(t, c, object)
	}
	eventually(t, c, daemons, func() bool {
		s := daemons.Status
		return s.ObservedGeneration == daemons.Generation && s.UpdatedNumberScheduled == s.DesiredNumberScheduled && s.NumberAvailable == 1
	})
	eventually(t, c, stateful, func() bool {
		s := stateful.Status
		return s.ObservedGeneration == stateful.Generation && s.UpdatedReplicas == 1 && s.CurrentRevision == s.UpdateRevision && s.UpdateRevision != ""
	})
	eventually(t, c, job, func() bool {
		return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
		})
	})
}

func testUpdate(t *testing.T, c client.Client) {
	operator := newOperator(t, c, "dns", "openshift-dns")
	assert.Empty(t, operator.Status.Conditions, "no operator reports before its Deployment exists")
	d := newDeployment(t, c, "dns-operator", "1.0.0")
	ignored := newDeployment(t, c, "ignored", "1.0.0")
	eventually(t, c, operator, func() bool { return version(operator) == "1.0.0" })
	for kind, want := range map[configv1.ClusterStatusConditionType]configv1.ConditionStatus{
		configv1.OperatorAvailable: "True", configv1.OperatorProgressing: "False",
		configv1.OperatorDegraded: "False", configv1.OperatorUpgradeable: "True",
	} {
		assert.Equal(t, want, status(operator, kind), kind)
	}
	eventually(t, c, d, func() bool {
		s := d.Status
		return s.ObservedGeneration == d.Generation && s.AvailableReplicas == 2 && s.UpdatedReplicas == 2 && len(s.Conditions) == 2
	})

	d.Spec.Template.Spec = podSpec("1.1.0")
	require.NoError(t, c.Update(t.Context(), d))
	eventually(t, c, operator, func() bool { return version(operator) == "1.1.0" })
	eventually(t, c, d, func() bool { return d.Status.ObservedGeneration == d.Generation && d.Generation == 2 })
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(ignored), ignored))
	assert.Zero(t, ignored.Status.ObservedGeneration, "an ignored Deployment does not change")

	// A recreated ClusterOperator is another object and gets its status again.
	require.NoError(t, c.Delete(t.Context(), operator))
	operator = newOperator(t, c, "dns", "openshift-dns")
	eventually(t, c, operator, func() bool { return version(operator) == "1.1.0" })
}

func testFailure(t *testing.T, c client.Client) {
	operator := newOperator(t, c, "broken", "openshift-dns")
	newDeployment(t, c, "broken-operator", "1.0.0")
	eventually(t, c, operator, func() bool { return status(operator, configv1.OperatorDegraded) == "True" })
	assert.Equal(t, configv1.ConditionFalse, status(operator, configv1.OperatorAvailable))
	assert.Empty(t, version(operator))
}

func testFollow(t *testing.T, c client.Client) {
	operator, ignored := newOperator(t, c, "silent", "nowhere"), newOperator(t, c, "ignored", "nowhere")
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}, Spec: configv1.ClusterVersionSpec{ClusterID: "11111111-2222-4333-8444-555555555555"}}
	create(t, c, cv)
	cv.Status.Desired = configv1.Release{Version: "2.0.0", Image: "registry.example/release@sha256:0"}
	cv.Status.VersionHash, cv.Status.ObservedGeneration = "x", 1
	cv.Status.AvailableUpdates = []configv1.Release{}
	require.NoError(t, c.Status().Update(t.Context(), cv))
	eventually(t, c, operator, func() bool { return version(operator) == "2.0.0" })
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(ignored), ignored))
	assert.Empty(t, ignored.Status.Conditions)
}

// footprint checks in the audit log that the actor only lists, watches and writes status. It returns the number of these requests.
func footprint(t *testing.T, e *env.Env) (writes, reads int) {
	t.Helper()
	events, err := e.Audit()
	require.NoError(t, err)
	for _, event := range events {
		if !strings.HasPrefix(event.UserAgent, UserAgent) {
			continue
		}
		switch event.Verb {
		case "list", "watch":
			reads++
		case "patch":
			assert.Equal(t, "status", event.Object.Subresource, "%v", event)
			writes++
		default:
			t.Errorf("unexpected request of the actor: %s %s", event.Verb, event.Object)
		}
	}
	t.Logf("writes %d, lists and watches %d", writes, reads)
	return writes, reads
}

func newClient(t *testing.T, e *env.Env) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, configv1.Install, apiextensionsv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	c, err := client.New(e.Config("test"), client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

// createTypes creates the CRDs of the pinned API module.
func createTypes(t *testing.T, c client.Client) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api")
	dir, err := list.Output()
	require.NoError(t, err)
	crds := filepath.Join(string(bytes.TrimSpace(dir)), "config/v1/zz_generated.crd-manifests")
	for _, file := range []string{
		"0000_00_cluster-version-operator_01_clusteroperators.crd.yaml",
		"0000_00_cluster-version-operator_01_clusterversions-Default.crd.yaml",
	} {
		data, err := os.ReadFile(filepath.Join(crds, file))
		require.NoError(t, err)
		crd := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.Unmarshal(data, crd))
		create(t, c, crd)
		eventually(t, c, crd, func() bool {
			return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			})
		})
	}
}

func podSpec(version string) corev1.PodSpec {
	container := corev1.Container{Name: "c", Image: "registry.example/c"}
	if version != "" {
		container.Env = []corev1.EnvVar{{Name: "RELEASE_VERSION", Value: version}}
	}
	return corev1.PodSpec{Containers: []corev1.Container{container}}
}

func newDeployment(t *testing.T, c client.Client, name, version string) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": name}
	replicas := int32(2)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-dns", Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec(version)},
		},
	}
	create(t, c, d)
	return d
}

// newOperator creates a ClusterOperator as the version operator does, with relatedObjects and without conditions.
func newOperator(t *testing.T, c client.Client, name, namespace string) *configv1.ClusterOperator {
	t.Helper()
	operator := &configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: name}}
	create(t, c, operator)
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"relatedObjects": []configv1.ObjectReference{{Resource: "namespaces", Name: namespace}},
	}})
	require.NoError(t, err)
	require.NoError(t, c.Status().Patch(t.Context(), operator, client.RawPatch("application/merge-patch+json", patch)))
	return operator
}

func create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), object))
}

func eventually(t *testing.T, c client.Client, object client.Object, condition func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		return c.Get(t.Context(), client.ObjectKeyFromObject(object), object) == nil && condition()
	}, time.Minute, 10*time.Millisecond, "%T %s", object, object.GetName())
}

func version(operator *configv1.ClusterOperator) string {
	for _, v := range operator.Status.Versions {
		if v.Name == "operator" {
			return v.Version
		}
	}
	return ""
}

func status(operator *configv1.ClusterOperator, kind configv1.ClusterStatusConditionType) configv1.ConditionStatus {
	for _, c := range operator.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}
