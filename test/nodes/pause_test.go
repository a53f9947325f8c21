//go:build linux

package nodes_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/drain"
	nodepool "github.com/cluster-version/cvo/pkg/node/pool"
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

// drain returns the warnings since the last call.
func (w *warnings) drain() []string {
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
		return seen.drain()
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

// TestTwoUpdatesOfAPausedPoolCostOneDrain updates the release twice while the workers are paused, as for an update from one EUS release to the next. Each
// release brings another config for both pools.
func TestTwoUpdatesOfAPausedPoolCostOneDrain(t *testing.T) {
	s := prepare(t, "m1", "w1", "w2")
	workers := []string{"w1", "w2"}
	run := func(release string) (stop func()) {
		stops := []func(){s.controller(release)}
		for name := range s.hosts {
			stops = append(stops, s.daemon(name, release))
		}
		return func() {
			for _, stop := range stops {
				stop()
			}
		}
	}
	bring := func(release string) {
		s.release(release)
		for _, role := range []string{"master", "worker"} {
			s.configFor(role, "50-"+role, map[string]string{"/etc/release": release})
		}
	}
	pause := func(paused bool) {
		p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"paused":%t}}`, paused))
		require.NoError(t, s.client.Patch(t.Context(), p, patch))
	}

	bring("1.0.0")
	stop := run("1.0.0")
	first, master := s.updatedPool("worker", "", 2), s.updatedPool("master", "", 1)
	pause(true)
	s.eventually(func(c *assert.CollectT) { // another controller removes the conditions of the update
		for _, name := range workers {
			assert.Empty(c, drain.Described(s.node(name)), name)
		}
	})
	begun := time.Now()
	history := s.history(workers...)
	var deferred []string
	for _, release := range []string{"1.1.0", "1.2.0"} {
		stop()
		bring(release)
		stop = run(release)
		master = s.updatedPool("master", master, 1)
		s.eventually(func(c *assert.CollectT) {
			p := &mcfgv1.MachineConfigPool{}
			require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: "worker"}, p))
			target := p.Spec.Configuration.Name
			require.NotContains(c, append(deferred, first), target)
			require.Equal(c, first, p.Status.Configuration.Name)
			updating := nodepool.Condition(p, mcfgv1.MachineConfigPoolUpdating)
			require.Equal(c, corev1.ConditionFalse, updating.Status)
			require.Equal(c, "Pool is paused; will not update to MachineConfig "+target, updating.Message)
			require.Equal(c, []int32{2, 0, 0, 0, 0}, []int32{
				p.Status.MachineCount, p.Status.UpdatedMachineCount, p.Status.ReadyMachineCount,
				p.Status.UnavailableMachineCount, p.Status.DegradedMachineCount,
			})
			for _, name := range workers { // a daemon reports its release, in a paused pool, too
				require.Equal(c, release, s.node(name).Annotations[api.DaemonReleaseAnnotation])
			}
			if !slices.Contains(deferred, target) {
				deferred = append(deferred, target)
			}
		})
	}
	written := map[string]int{}
	for _, r := range s.requests(begun) {
		if r.Object.Resource == "nodes" && slices.Contains(workers, r.Object.Name) && r.Write() {
			assert.True(t, strings.HasPrefix(r.UserAgent, "cvo-node-daemon"), "%s: %s %s", r.UserAgent, r.Verb, r.Object)
			written[r.Object.Name]++
		}
		assert.NotEqual(t, "eviction", r.Object.Subresource)
	}
	assert.Equal(t, map[string]int{"w1": 2, "w2": 2}, written, "each release of the daemon")
	for _, name := range workers {
		text, err := os.ReadFile(s.hosts[name] + "/etc/release")
		require.NoError(t, err)
		assert.Equal(t, "1.0.0", string(text))
	}

	pause(false)
	last := s.updatedPool("worker", first, 2)
	assert.Equal(t, deferred[1], last)
	for name, seen := range history() {
		assert.Equal(t, []string{first, last}, seen.configs, name)
		assert.Equal(t, 1, seen.cordons, name)
	}
	stop()
}

// seen is what Nodes have shown.
type seen struct {
	configs []string
	cordons int
}

// history follows Nodes. The result returns what they have shown, by name, in the order of time.
func (s *stage) history(names ...string) (end func() map[string]*seen) {
	scheme, err := cluster.NewScheme()
	require.NoError(s.t, err)
	c, err := client.NewWithWatch(s.env.Config("administrator"), client.Options{Scheme: scheme})
	require.NoError(s.t, err)
	nodes, err := c.Watch(s.t.Context(), &corev1.NodeList{})
	require.NoError(s.t, err)
	all := map[string]*seen{}
	cordoned := map[string]bool{}
	for _, name := range names {
		all[name] = &seen{}
	}
	var following sync.WaitGroup
	var until sync.Map
	following.Go(func() {
		for event := range nodes.ResultChan() {
			n, ok := event.Object.(*corev1.Node)
			if !ok || all[n.Name] == nil {
				continue
			}
			entry := all[n.Name]
			if config := n.Annotations[api.DesiredConfigAnnotation]; len(entry.configs) == 0 || entry.configs[len(entry.configs)-1] != config {
				entry.configs = append(entry.configs, config)
			}
			if n.Spec.Unschedulable && !cordoned[n.Name] {
				entry.cordons++
			}
			cordoned[n.Name] = n.Spec.Unschedulable
			until.Store(n.Name, n.ResourceVersion)
		}
	})
	return func() map[string]*seen {
		s.eventually(func(c *assert.CollectT) {
			for _, name := range names {
				last, _ := until.Load(name)
				assert.Equal(c, s.node(name).ResourceVersion, last)
			}
		})
		nodes.Stop()
		following.Wait()
		return all
	}
}
