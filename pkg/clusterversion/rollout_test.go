package clusterversion

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/observe"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// halted applies everything but the object of one name, at which it waits until it is cut short.
type halted struct {
	at      string
	reached func()
}

func (h halted) Apply(ctx context.Context, m *manifest.Manifest, _ release.Mode) (apply.Change, error) {
	if m.Object.GetName() == h.at {
		h.reached()
		<-ctx.Done()
		return apply.Change{}, ctx.Err()
	}
	return apply.Change{Action: apply.Created, UID: "u", ResourceVersion: "1"}, nil
}

func (halted) Precreate(context.Context, *manifest.Manifest) (apply.Change, error) {
	return apply.Change{}, nil
}

func (halted) Content(m *manifest.Manifest) ([sha256.Size]byte, error) {
	text, err := json.Marshal(m.Object.Object)
	return sha256.Sum256(text), err
}

func (halted) Live(context.Context, *manifest.Manifest) (*unstructured.Unstructured, error) {
	return nil, nil //nolint:nilnil // there is no such object
}

// unseen is an Observer that no watch has told anything.
type unseen struct{}

func (unseen) Object(manifest.ID) client.Object { return nil }

func (unseen) Look(context.Context, *manifest.Manifest, bool) observe.Look { return observe.Look{} }

// cutShort makes a pass over a release that is cut short when it has applied its first object of two.
func cutShort(t *testing.T) (*rollout.Plan, *rollout.Passer) {
	t.Helper()
	p, err := payload.Load(files("1.1.0", "release-manifests/0000_20_b_01.yaml", `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: ns, name: b, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
`), imageOf("1.1.0"), payload.Options{})
	require.NoError(t, err)
	plan, err := rollout.NewPlan(p.Release, p.Manifests, release.Updating)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	passer := &rollout.Passer{Clock: clock.RealClock{}, Applier: halted{"b", cancel}, Observer: unseen{}}
	_, _, err = passer.Run(ctx, plan, rollout.Settled{})
	require.ErrorIs(t, err, context.Canceled)
	return plan, passer
}

// TestPassThatWasCutShortIsTakenOver: what it has applied is there, whatever is rolled out next.
func TestPassThatWasCutShortIsTakenOver(t *testing.T) {
	plan, passer := cutShort(t)
	t.Run("it goes on where the same release was", func(t *testing.T) {
		m := &memory{passer: passer}
		m.takeOver(plan.Release)
		assert.Equal(t, 1, m.settled.Progress(plan).Done, "progress does not run backwards when what the cluster gets changes")
	})
	t.Run("it knows on the way back what the other release has left", func(t *testing.T) {
		m := &memory{passer: passer, another: true}
		m.takeOver(plan.Release)
		assert.Zero(t, m.settled.Progress(plan).Done)
		require.Len(t, m.settled.Records(plan), 1)
		assert.Equal(t, "a", m.settled.Records(plan)[0].ID.Name)
		assert.False(t, m.another, "the next rollout is not of another release than this one")
	})
	t.Run("it keeps what is known where no pass was made", func(t *testing.T) {
		m := &memory{passer: &rollout.Passer{}, settled: passer.Settled()}
		m.takeOver(plan.Release)
		assert.Equal(t, 1, m.settled.Progress(plan).Done)
	})
}

// blank is an inventory that knows nothing.
type blank struct{}

func (blank) Load(context.Context) (inventory.Inventory, error) { return inventory.Inventory{}, nil }

func (blank) Save(context.Context, inventory.Inventory) error { return nil }

// TestRolloutThatIsNotWantedAnyMoreTakesNothingOver: a rollout is superseded before it has begun.
func TestRolloutThatIsNotWantedAnyMoreTakesNothingOver(t *testing.T) {
	_, passer := cutShort(t)
	cv := clusterAt(partial("1.1.0"), completed("1.0.0"))
	a := acceptedRelease("1.1.0")
	engine := func(*configv1.ClusterVersion, *payload.Payload) Engine { return Engine{Passer: &rollout.Passer{}} }
	c := New(clock.RealClock{}, nil, nil, idle{}, Stages{}, blank{}, engine, func() {}, Options{})
	c.memory.planKey, c.memory.passer = "wanted", passer
	w := &rolling{Reconciler: c, key: "superseded", mode: release.Updating, r: &round{original: cv, cv: cv, accepted: &a}}
	require.ErrorIs(t, w.begin(t.Context()), errSuperseded)
	assert.Same(t, passer, c.memory.passer)
	assert.NotNil(t, c.memory.restored, "the inventory is read once, and is for the rollout that begins")
}

// TestRolloutThatIsWantedAgainIsRecorded: an edit is taken back before what it asks for has begun, so that the rollout
// before begins anew, under the same key.
func TestRolloutThatIsWantedAgainIsRecorded(t *testing.T) {
	cv := clusterAt(completed("1.1.0"))
	a := acceptedRelease("1.1.0")
	engine := func(*configv1.ClusterVersion, *payload.Payload) Engine { return Engine{Passer: &rollout.Passer{}} }
	background, store := slots{}, &savedInventory{}
	c := New(clock.RealClock{}, nil, nil, background, Stages{}, store, engine, func() {}, Options{})
	c.memory.planKey = "wanted"
	for range 2 {
		w := &rolling{Reconciler: c, key: "wanted", mode: release.Reconciling, r: &round{original: cv, cv: cv, accepted: &a}}
		require.NoError(t, w.begin(t.Context()))
	}
	background[SlotInventory].step(t.Context())
	assert.Equal(t, 1, store.saves, "what is written is the inventory of the rollout that is under way")
}

func TestBelieved(t *testing.T) {
	id := manifest.ID{Kind: "ConfigMap", Namespace: "ns", Name: "a"}
	kept := func(version string) inventory.Inventory {
		return inventory.Inventory{Digest: string(digestOf(version)), Records: map[manifest.ID]inventory.Record{
			id: {ID: id, Content: inventory.Content{1}},
		}}
	}
	next := release.Release{Version: "1.0.0", Image: imageOf("1.0.0")}
	assert.Equal(t, inventory.Content{1}, believed(kept("1.0.0"), next).Records[id].Content)
	other := kept("1.1.0")
	assert.Zero(t, believed(other, next).Records[id].Content, "values of the other release may stand there")
	assert.Equal(t, inventory.Content{1}, other.Records[id].Content, "the inventory itself stays as it was read")
	next.Image = "example.com/r:tag"
	assert.Equal(t, inventory.Content{1}, believed(kept("1.1.0"), next).Records[id].Content, "it may be the same")
}
