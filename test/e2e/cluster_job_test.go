package e2e

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
)

// testJobRetrieval updates a cluster whose pods cannot reach the registry. A Job provides the release from the image that the node has
// pulled, and a ConfigMap provides its signature.
func testJobRetrieval(t *testing.T, s *site) {
	l := installed(t, s)
	l.install(l.image(), "--payload-retrieval=job")
	l.settled(l.image())
	to := l.asUpdate(l.small(changedComponent))
	before := l.signWithConfigMap(to.Image)
	defer l.trust(before)
	turnedAway := l.keepPodsFromRegistry()

	began := time.Now()
	l.update(to)
	l.completed(to.Version)
	t.Logf("updated to %s in %s", to.Version, since(began))
	assert.Zero(t, turnedAway(), "no pod tries to reach the registry")
	var jobs []string
	for _, e := range l.changes(began) {
		if e.Object.Resource == "jobs" && e.Object.Namespace == api.OperatorNamespace && e.Verb == "create" {
			jobs = append(jobs, e.Object.Name)
		}
	}
	require.Len(t, jobs, 1, "one Job is created")
	assert.Contains(t, jobs[0], "version-"+to.Version+"-")
	for _, pod := range l.settled(to.Image) {
		assert.Contains(t, pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "CVO_PAYLOAD_RETRIEVAL", Value: "job"}, "the retrieval method survives the update")
	}
}

// signWithConfigMap signs a release with a signature in a ConfigMap, which needs no registry, and makes the cluster trust it. It returns
// the earlier trust policy.
func (l *testPlatform) signWithConfigMap(pullspec string) string {
	l.Helper()
	keys, ctx := filepath.Join(l.TempDir(), "keys"), l.Context()
	l.mustRun("release", "keygen", "--type", "openpgp", "--out", keys)
	signature := filepath.Join(keys, "signature.yaml")
	_, err := l.Platform.Run(ctx, "release", "sign", pullspec, "--key", filepath.Join(keys, "private.asc"), "--configmap", signature)
	require.NoError(l, err)
	data, err := os.ReadFile(signature)
	require.NoError(l, err)
	config := &corev1.ConfigMap{}
	require.NoError(l, yaml.Unmarshal(data, config))
	require.NoError(l, l.client.Create(ctx, config))

	policy, err := os.ReadFile(filepath.Join(keys, "trust.yaml"))
	require.NoError(l, err)
	return l.trust(string(policy))
}

// trust sets the cluster's trust policy and returns the earlier one.
func (l *testPlatform) trust(policy string) string {
	l.Helper()
	trusts := l.kube.CoreV1().ConfigMaps(api.ConfigNamespace)
	trust, err := trusts.Get(l.Context(), api.TrustConfigMap, metav1.GetOptions{})
	require.NoError(l, err)
	before := trust.Data["trust-policy.yaml"]
	require.NotEmpty(l, before)
	trust.Data["trust-policy.yaml"] = policy
	_, err = trusts.Update(l.Context(), trust, metav1.UpdateOptions{})
	require.NoError(l, err)
	return before
}

// keepPodsFromRegistry allows only nodes to reach the registry and checks that. The returned function counts the packets rejected since
// then.
func (l *testPlatform) keepPodsFromRegistry() func() int {
	l.Helper()
	host, port, err := net.SplitHostPort(l.registry.Host)
	require.NoError(l, err)
	rule := []string{"FORWARD", "--destination", host, "--protocol", "tcp", "--dport", port, "--jump", "REJECT", "--reject-with", "tcp-reset"}
	nodes := append([]string{l.ControlPlane}, l.Workers...)
	iptables := func(node string, args ...string) string {
		out, err := l.Exec(context.WithoutCancel(l.Context()), node, nil, append([]string{"iptables", "--wait"}, args...)...)
		require.NoError(l, err)
		return out
	}
	for _, node := range nodes {
		iptables(node, append([]string{"--insert"}, rule...)...)
		l.Cleanup(func() { iptables(node, append([]string{"--delete"}, rule...)...) })
	}
	count := func() (packets int) {
		for _, node := range nodes {
			for line := range strings.Lines(iptables(node, "--list", "FORWARD", "--numeric", "--verbose", "--exact")) {
				if !strings.Contains(line, host) {
					continue
				}
				n, err := strconv.Atoi(strings.Fields(line)[0])
				require.NoError(l, err, line)
				packets += n
			}
		}
		return packets
	}

	namespace := newNamespace(l.T, l.kube)
	image := pushProbe(l.T, l.site, "components/probe:1", nil)
	_, err = l.kube.CoreV1().Pods(namespace).Create(l.Context(), probe("probe", l.Workers[0], image), metav1.CreateOptions{})
	require.NoError(l, err)
	waitForPod(l.T, l.kube, namespace, "probe")
	require.EventuallyWithT(l, func(c *assert.CollectT) {
		answer, err := l.kube.CoreV1().Pods(namespace).ProxyGet("http", "probe", "8080", "/get", map[string]string{"url": "https://" + l.registry.Host + "/v2/"}).DoRaw(l.Context())
		require.Error(c, err)
		require.Contains(c, string(answer), "connection re", "a pod cannot reach the registry")
	}, patience, tick)
	before := count()
	require.NotZero(l, before, "the pod's packets were rejected")
	return func() int { return count() - before }
}
