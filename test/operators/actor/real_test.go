package actor

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
)

// TestRealReleasesRollOut runs the program as a separate process. A client creates the ClusterOperators and Deployments of a real release
// at once, and then those of the next release.
func TestRealReleasesRollOut(t *testing.T) {
	dir := filepath.Join(fixture.Testdata(t), "payloads")
	e := env.New(t, env.Options{})
	startProgram(t, "--kubeconfig", e.Kubeconfig, "--delay", "300ms", "--flap", "dns=2", "--flap-every", "50ms", "--slow", "network=1s")
	c := newClient(t, e)
	createTypes(t, c)

	operators, deployments := readRelease(t, filepath.Join(dir, "4.22.9", "release-manifests"))
	createNamespaces(t, c, deployments)
	began := time.Now()
	for _, o := range operators {
		wanted := o.DeepCopy()
		create(t, c, o)
		o.Status = configv1.ClusterOperatorStatus{RelatedObjects: wanted.Status.RelatedObjects}
		require.NoError(t, c.Status().Update(t.Context(), o))
		*o = *wanted
	}
	for _, d := range deployments {
		create(t, c, d.DeepCopy())
	}
	awaitOperators(t, c, operators)
	t.Logf("4.22.9 after %v", time.Since(began))

	operators, deployments = readRelease(t, filepath.Join(dir, "4.23.0", "release-manifests"))
	began = time.Now()
	for _, d := range deployments {
		now := &appsv1.Deployment{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(d), now))
		now.Spec.Template = d.Spec.Template
		require.NoError(t, c.Update(t.Context(), now))
	}
	awaitOperators(t, c, operators)
	t.Logf("4.23.0 after %v", time.Since(began))

	writes, _ := footprint(t, e)
	// Each release has two reports per ClusterOperator (33), one per Deployment (33) and four flaps. The allowance covers conflicts with
	// the client.
	assert.LessOrEqual(t, writes, 2*(2*33+33+4)+20)
}

// startProgram builds the program and runs it until the test ends.
func startProgram(t *testing.T, args ...string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "operators")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "..").CombinedOutput()
	require.NoError(t, err, string(out))
	program := exec.CommandContext(t.Context(), binary, args...)
	stderr, err := program.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, program.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			t.Log("operators:", lines.Text())
		}
	}()
	t.Cleanup(func() { // runs after the context has ended, which kills the program
		<-done
		_ = program.Wait()
	})
}

func createNamespaces(t *testing.T, c client.Client, deployments []*appsv1.Deployment) {
	t.Helper()
	var names []string
	for _, d := range deployments {
		names = append(names, d.Namespace)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
}

// awaitOperators waits until every ClusterOperator is available at all versions that its manifest requires.
func awaitOperators(t *testing.T, c client.Client, wanted []*configv1.ClusterOperator) {
	t.Helper()
	waiting := map[string]bool{}
	require.Eventually(t, func() bool {
		var list configv1.ClusterOperatorList
		if err := c.List(t.Context(), &list); err != nil {
			return false
		}
		clear(waiting)
		for _, w := range wanted {
			i := slices.IndexFunc(list.Items, func(o configv1.ClusterOperator) bool { return o.Name == w.Name })
			settled := i >= 0 && status(&list.Items[i], configv1.OperatorAvailable) == "True" &&
				status(&list.Items[i], configv1.OperatorProgressing) == "False"
			for _, v := range w.Status.Versions {
				settled = settled && slices.Contains(list.Items[i].Status.Versions, v)
			}
			if !settled {
				waiting[w.Name] = true
			}
		}
		return len(waiting) == 0
	}, 60*time.Second, 50*time.Millisecond, "still waiting for %v", waiting)
}
