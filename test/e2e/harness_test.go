package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/e2e/platform"
)

// testPlatform is the platform on a site as its administrator sees it, with files, cvo and clients.
type testPlatform struct {
	*testing.T
	*site
	client client.WithWatch
	kube   kubernetes.Interface
}

// newTestPlatform returns the tools to install and update a platform, without access to a cluster.
func newTestPlatform(t *testing.T, s *site) *testPlatform {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), configv1.Install(scheme), mcfgv1.Install(scheme), operatorv1.Install(scheme)))
	config := rest.CopyConfig(s.Config)
	config.WarningHandlerWithContext = rest.NoWarnings{}
	l := &testPlatform{T: t, site: s}
	var err error
	l.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	l.kube, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return l
}

// in returns the platform for a subtest.
func (l *testPlatform) in(t *testing.T) *testPlatform {
	inner := *l
	inner.T = t
	return &inner
}

// installed returns a completely installed platform of any version.
func installed(t *testing.T, s *site) *testPlatform {
	t.Helper()
	l := newTestPlatform(t, s)
	if _, err := l.clusterVersion(); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		l.trustRegistry()
		l.install(l.release("1.0.0"), append(l.flags, "--wait")...)
	} else {
		require.NoError(t, err)
	}
	l.mustRun("upgrade", "wait", "--timeout", patience.String(), "--quiet")
	return l
}

// release creates a release of the example platform, or returns the existing one of that version.
func (l *testPlatform) release(version string, previous ...string) string {
	l.Helper()
	return l.releaseOf(platform.Release{Version: version, Previous: previous})
}

func (l *testPlatform) releaseOf(r platform.Release) string {
	l.Helper()
	if pullspec := l.releases[r.Version]; pullspec != "" && len(r.Changes) == 0 {
		return pullspec
	}
	r.Changes = slices.Concat(l.edits, r.Changes)
	pullspec, err := l.Release(l.Context(), r)
	require.NoError(l, err)
	l.releases[r.Version] = pullspec
	return pullspec
}

// next returns a release to which the cluster may be updated from its current one.
func (l *testPlatform) next() platform.Release {
	l.Helper()
	from := l.version()
	var minor int
	_, err := fmt.Sscanf(from, "1.%d.0", &minor)
	require.NoError(l, err, "the version after %s", from)
	return platform.Release{Version: fmt.Sprintf("1.%d.0", minor+1), From: "1.1.0", Previous: []string{from}}
}

// small returns a next release with changes only in the operator and some components, so that an update takes only seconds.
func (l *testPlatform) small(components ...string) platform.Release {
	l.Helper()
	r := l.next()
	if _, ok := l.reported("example-autoscaler"); !ok {
		r.From = "1.0.0" // this version has no such component
	}
	stays, ok := l.reported("example-config")
	require.True(l, ok, "the version of an unchanged component")
	r.Changes = []platform.Change{platform.Unchanged(stays, components...)}
	return r
}

// asUpdate creates a release and returns the request for it.
func (l *testPlatform) asUpdate(r platform.Release) configv1.Update {
	l.Helper()
	return configv1.Update{Version: r.Version, Image: l.releaseOf(r)}
}

// reported returns the version that a component reports.
func (l *testPlatform) reported(component string) (string, bool) {
	l.Helper()
	operator := &configv1.ClusterOperator{}
	err := l.client.Get(l.Context(), client.ObjectKey{Name: component}, operator)
	if apierrors.IsNotFound(err) {
		return "", false
	}
	require.NoError(l, err)
	for _, version := range operator.Status.Versions {
		if version.Name == "operator" {
			return version.Version, true
		}
	}
	return "", false
}

// trustRegistry makes the operator trust the registry, whose certificate is not from a public authority.
func (l *testPlatform) trustRegistry() {
	l.Helper()
	const namespace = "openshift-config-managed"
	_, err := l.kube.CoreV1().Namespaces().Create(l.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(l, err)
	}
	bundle := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "trusted-ca-bundle"}, Data: map[string]string{"ca-bundle.crt": string(l.registry.CA)},
	}
	_, err = l.kube.CoreV1().ConfigMaps(namespace).Create(l.Context(), bundle, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = l.kube.CoreV1().ConfigMaps(namespace).Update(l.Context(), bundle, metav1.UpdateOptions{})
	}
	require.NoError(l, err)
}

// outcome is the output of cvo install and cvo uninstall.
type outcome struct {
	Reached string
	Objects []struct{ Kind, Namespace, Name, Outcome, Message string }
}

func (l *testPlatform) install(pullspec string, flags ...string) outcome {
	l.Helper()
	args := []string{
		"install", "--release-image", pullspec, "--trust", l.Platform.Trust, "--pull-secret", l.pullSecret,
		"--certificate-authority", l.CA, "--timeout", "5m", "-o", "json",
	}
	return l.parse(l.mustRun(append(args, flags...)...))
}

func (l *testPlatform) parse(out string) outcome {
	l.Helper()
	var o outcome
	require.NoError(l, json.Unmarshal([]byte(out), &o), out)
	return o
}

// run runs cvo against the cluster and returns its stdout. An error contains stderr.
func (l *testPlatform) run(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, l.CVO, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("cvo %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return out.String(), nil
}

// mustRun does the same. On an error it ends the test and logs information about the cluster.
func (l *testPlatform) mustRun(args ...string) string {
	l.Helper()
	out, err := l.run(l.Context(), args...)
	if err != nil {
		l.explain()
	}
	require.NoError(l, err, out)
	return out
}

// explain logs what an administrator would check first.
func (l *testPlatform) explain() {
	l.Helper()
	if cv, err := l.clusterVersion(); err == nil {
		for _, c := range cv.Status.Conditions {
			l.Logf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	pods, err := l.kube.CoreV1().Pods("").List(l.Context(), metav1.ListOptions{})
	if err != nil {
		l.Log(err)
		return
	}
	for _, pod := range pods.Items {
		ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if ready || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		l.Logf("pod %s/%s is not ready: %s %+v", pod.Namespace, pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses)
	}
	operators, err := l.operators()
	for _, pod := range operators {
		lines := int64(30)
		log, _ := l.kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: &lines}).DoRaw(l.Context())
		l.Logf("end of the log of %s:\n%s", pod.Name, log)
	}
	if err != nil {
		l.Log(err)
	}
}

func (l *testPlatform) clusterVersion() (*configv1.ClusterVersion, error) {
	cv := &configv1.ClusterVersion{}
	return cv, l.client.Get(l.Context(), client.ObjectKey{Name: api.ClusterVersionName}, cv)
}

// version returns the last completed version.
func (l *testPlatform) version() string {
	l.Helper()
	cv, err := l.clusterVersion()
	require.NoError(l, err)
	for _, entry := range cv.Status.History {
		if entry.State == configv1.CompletedUpdate {
			return entry.Version
		}
	}
	require.Fail(l, "no version has completed", "%+v", cv.Status.History)
	return ""
}

// update requests a release by editing the ClusterVersion.
func (l *testPlatform) update(to configv1.Update) {
	l.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"desiredUpdate": to}})
	require.NoError(l, err)
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: api.ClusterVersionName}}
	require.NoError(l, l.client.Patch(l.Context(), cv, client.RawPatch("application/merge-patch+json", patch)))
}

// completed waits until a version is complete and only its operators are left.
func (l *testPlatform) completed(version string) {
	l.Helper()
	l.await(version+" to be completed", func(cv *configv1.ClusterVersion) bool {
		h := cv.Status.History
		return len(h) > 0 && h[0].Version == version && h[0].State == configv1.CompletedUpdate &&
			cv.Status.ObservedGeneration == cv.Generation && condition(cv, "Progressing").Status == configv1.ConditionFalse
	})
}

// await watches the ClusterVersion until done returns true.
func (l *testPlatform) await(what string, done func(*configv1.ClusterVersion) bool) *configv1.ClusterVersion {
	l.Helper()
	cv := &configv1.ClusterVersion{}
	if !awaitObject(l, cv, "", api.ClusterVersionName, patience, func() bool { return done(cv) }) {
		l.explain()
		require.Fail(l, "waiting for "+what)
	}
	return cv
}

// awaitObject reads an object until done returns true. It retries if the API server does not answer.
func awaitObject(l *testPlatform, into client.Object, namespace, name string, limit time.Duration, done func() bool) bool {
	ctx, cancel := context.WithTimeout(l.Context(), limit)
	defer cancel()
	for {
		if err := l.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into); err == nil && done() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func condition(cv *configv1.ClusterVersion, kind string) configv1.ClusterOperatorStatusCondition {
	for _, c := range cv.Status.Conditions {
		if string(c.Type) == kind {
			return c
		}
	}
	return configv1.ClusterOperatorStatusCondition{}
}

// operators returns the operator's pods without those that are being deleted.
func (l *testPlatform) operators() ([]corev1.Pod, error) {
	list, err := l.kube.CoreV1().Pods(api.OperatorNamespace).List(l.Context(), metav1.ListOptions{LabelSelector: "k8s-app=cluster-version-operator"})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil }), nil
}

// settled waits until two replicas of a release and no others run.
func (l *testPlatform) settled(image string) []corev1.Pod {
	l.Helper()
	var pods []corev1.Pod
	require.EventuallyWithT(l, func(c *assert.CollectT) {
		list, err := l.kube.CoreV1().Pods(api.OperatorNamespace).List(l.Context(), metav1.ListOptions{LabelSelector: "k8s-app=cluster-version-operator"})
		require.NoError(c, err)
		require.Len(c, list.Items, 2)
		for _, pod := range list.Items {
			require.Equal(c, image, pod.Spec.Containers[0].Image)
			require.False(c, readySince(pod).IsZero(), "%s is not ready", pod.Name)
		}
		pods = list.Items
	}, patience, tick)
	return pods
}

// readySince returns when a pod became ready, the zero time if it is not ready.
func readySince(pod corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// lease returns the operators' Lease.
func (l *testPlatform) lease() *coordinationv1.Lease {
	l.Helper()
	lease, err := l.kube.CoordinationV1().Leases(api.OperatorNamespace).Get(l.Context(), api.ClusterVersionName, metav1.GetOptions{})
	require.NoError(l, err)
	return lease
}

func since(began time.Time) time.Duration { return time.Since(began).Round(100 * time.Millisecond) }
