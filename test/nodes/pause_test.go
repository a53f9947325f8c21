//go:build linux

package nodes_test

import (
	"context"
	"sync"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/node/cluster"
)

// warnings collects the warnings of the API server.
type warnings struct {
	mutex sync.Mutex
	texts []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.texts = append(w.texts, text)
}

// take returns the warnings since the last call.
func (w *warnings) take() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

func TestPauseWarnsOfWhatItDefers(t *testing.T) {
	s := prepare(t)
	s.install()
	seen := &warnings{}
	cfg := s.env.Config("administrator")
	cfg.WarningHandlerWithContext = seen
	scheme, err := cluster.NewScheme()
	require.NoError(t, err)
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	require.NoError(t, err)

	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "pause-warning"}}
	require.NoError(t, c.Create(t.Context(), p))
	t.Cleanup(func() { assert.NoError(t, c.Delete(context.WithoutCancel(t.Context()), p)) })
	write := func(change func()) []string {
		change()
		require.NoError(t, c.Update(t.Context(), p))
		return seen.take()
	}
	const text = "Validation failed for ValidatingAdmissionPolicy 'machine-config-pause-warning' with binding 'machine-config-pause-warning': " +
		"MachineConfigPool pause-warning is paused: until it is resumed, its nodes get no new MachineConfig, such as certificates, pull secrets and the image " +
		"of the operating system"
	s.eventually(func(c *assert.CollectT) { // the API server applies a new policy after a moment
		assert.Empty(c, write(func() { p.Spec.Paused = false }))
		assert.Equal(c, []string{text}, write(func() { p.Spec.Paused = true }))
	})
	assert.Empty(t, write(func() { p.Labels = map[string]string{"a": "b"} }), "it was paused before")

	p.Status.Configuration.Name = "rendered-a"
	p.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{}
	require.NoError(t, c.Status().Update(t.Context(), p))
	assert.Empty(t, write(func() { p.Spec.Paused, p.Spec.Configuration.Name = false, "rendered-b" }))
	assert.Equal(t, []string{text + ". It defers rendered-b, rendered from 00-worker, 99-worker-sysctl"}, write(func() {
		p.Spec.Paused = true
		p.Spec.Configuration.Source = nil
		for _, name := range []string{"00-worker", "99-worker-sysctl"} {
			p.Spec.Configuration.Source = append(p.Spec.Configuration.Source, corev1.ObjectReference{Name: name})
		}
	}))
}
