package tree

import (
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/test/golden"
	"github.com/cluster-version/cvo/test/snapshots"
)

func TestTreeMatchesTheGoldenFiles(t *testing.T) {
	for _, c := range []struct {
		name     string
		view     View
		snapshot *report.Snapshot
	}{
		{"updating", View{}, snapshots.Updating()},
		{"updating-unicode", View{Unicode: true}, snapshots.Updating()},
		{"updating-all", View{All: true}, snapshots.Updating()},
		{"component", View{Component: "dns"}, snapshots.Updating()},
		{"component-unknown", View{Component: "dsn"}, snapshots.Updating()},
		{"complete", View{}, snapshots.Complete()},
		{"outline", View{}, snapshots.Outline()},
	} {
		t.Run(c.name, func(t *testing.T) {
			golden.Assert(t, "status-"+c.name, strings.Join(c.view.Lines(c.snapshot), "\n")+"\n")
		})
	}
}

func TestTreeReportsAReleaseWithoutManifests(t *testing.T) {
	s := snapshots.Complete()
	assert.NotContains(t, strings.Join(View{}.Lines(s), "\n"), "The cluster gets no component")
	s.NothingIncluded = "none of the 3 manifests is for this cluster:\x1b no annotation a/edge (3)"
	lines := strings.Join(View{}.Lines(s), "\n")
	assert.Contains(t, lines, "\nThe cluster gets no component: none of the 3 manifests is for this cluster:")
	assert.NotContains(t, lines, "\x1b")
}

func TestTreeNamesAPause(t *testing.T) {
	s := snapshots.Updating()
	s.Progress.Paused = &report.Pause{Before: 50}
	assert.Contains(t, strings.Join(View{}.Lines(s), "\n"), "\npausing before runlevel 50, waiting on ")
	s.Progress.Problems, s.Progress.Paused.Reached = nil, true
	assert.Contains(t, View{}.Lines(s), "paused before runlevel 50, continue with 'cvo upgrade resume'")
}

// TestTreeNamesADeletionByAnotherClient has a complete release with a namespace in deletion, which the condition Failing reports.
func TestTreeNamesADeletionByAnotherClient(t *testing.T) {
	const message = "Namespace config is being deleted by another client"
	s := snapshots.Complete()
	s.Progress.Deletions = nil
	s.Progress.Problems = []report.Problem{{ID: s.Objects[0].ID, State: gate.Settled, Patience: gate.Report, Reason: api.ReasonDeleting, Message: message}}
	s.Objects[0].Reason, s.Objects[0].Message = api.ReasonDeleting, message
	lines := View{}.Lines(s)
	assert.Equal(t, "waiting on the deletion of Namespace config/config", lines[2])
	assert.Contains(t, strings.Join(lines, "\n"), "\nBeing deleted\n  Namespace config/config  "+message)
}

func TestTreeNamesInsecureRegistries(t *testing.T) {
	s := &report.Snapshot{InsecureRegistries: []string{"kind-registry:5000", "b.example\n\x1b[31m"}}
	assert.Contains(t, strings.Join(View{}.Lines(s), "\n"), "Registries without TLS, or with unchecked certificates: kind-registry:5000, b.example")
	assert.NotContains(t, strings.Join(View{}.Lines(s), "\n"), "\x1b")
	assert.NotContains(t, strings.Join(View{}.Lines(&report.Snapshot{}), "\n"), "without TLS")
}

func TestTreeLimitsLongLists(t *testing.T) {
	s := snapshots.Updating()
	s.Objects = nil
	for i := range 100 {
		s.Objects = append(s.Objects, snapshots.Object(10, "dns", "ConfigMap", strings.Repeat("x", i), snapshots.State(report.StateFailed, time.Minute, "Refused", "no")))
	}
	lines := strings.Join(View{}.Lines(s), "\n")
	problems, _, _ := strings.Cut(lines, "\nRollout")
	assert.Contains(t, problems, "and 90 more (--all)")
	assert.NotContains(t, strings.Join(View{All: true}.Lines(s), "\n"), "more (--all)")
}

func TestTreeNamesWorkloadsWithoutReplicas(t *testing.T) {
	s := snapshots.Updating()
	const line = "  Deployment web  no pod runs; the manifest leaves spec.replicas out"
	assert.NotContains(t, View{}.Lines(s), line)
	s.Objects = append(s.Objects, report.Object{ID: manifest.ID{Kind: "Deployment", Name: "web"}, State: report.StateSettled, ScaledToZero: true})
	assert.Contains(t, View{}.Lines(s), line)
	s.Progress.ScaledToZero, s.Objects = []manifest.ID{{Kind: "Deployment", Name: "web"}}, nil
	assert.Contains(t, View{}.Lines(s), line, "without the objects, too")
}

func TestTreeNamesUnmatchedOverrides(t *testing.T) {
	s := snapshots.Updating()
	const text = `These entries of spec.overrides match no object of this or an earlier release and have no effect: group "apps/v1" (did you mean group "apps"?)`
	assert.NotContains(t, strings.Join(View{}.Lines(s), "\n"), "Unmatched overrides")
	s.UnmatchedOverrides = text
	assert.Contains(t, View{}.Lines(s), "Unmatched overrides: "+text)
}

func TestTreeNamesOtherControllers(t *testing.T) {
	s := snapshots.Updating()
	id := manifest.ID{Kind: "ConfigMap", Namespace: "lab", Name: "foreign"}
	lines := func() string { return strings.Join(View{}.Lines(s), "\n") }
	const text = "Controlled by another object\n  ConfigMap lab/foreign  Shop shop"
	assert.NotContains(t, lines(), "Controlled by another object")
	s.Objects = append(s.Objects, report.Object{ID: id, State: report.StateSettled, Controller: "Shop shop"})
	assert.Contains(t, lines(), text)
	s.Progress.Controlled, s.Objects = []report.Controlled{{ID: id, Controller: "Shop shop"}}, nil
	assert.Contains(t, lines(), text, "without the objects, too")
}

func TestTreeDescribesRepairsOfObjectsWithoutManagedFields(t *testing.T) {
	s := snapshots.Updating()
	s.Objects[1].Repairs, s.Objects[1].LastRepair = 1, report.Repair{At: s.At, Reason: report.DriftChanged, Unowned: true}
	assert.Contains(t, strings.Join(View{}.Lines(s), "\n"), "changed by an unknown client (managedFields were empty); if that client writes another API version")
}

//threat:control-characters-rewrite
func TestTreeEscapesControlCharacters(t *testing.T) {
	s := snapshots.Updating()
	s.Progress.Release.Version = "1\x1b]0;title\a"
	s.Objects[1].LastRepair.Manager = "evil\x1b[31m"
	s.Objects[2].Loosened = []string{"a\rb\u202e"}
	s.Objects[5].Reason = "\x9b2J"
	all := strings.Join(append(View{All: true}.Lines(s), Changes(nil, s, "")...), "")
	for _, r := range all {
		assert.True(t, r >= ' ' && r != 0x7f && (r < 0x80 || r > 0x9f) && r != 0x202e, "%U", r)
	}
}

func TestChangesMatchTheGoldenFile(t *testing.T) {
	first := snapshots.Updating()
	var lines []string
	lines = append(lines, Changes(nil, first, "")...)
	lines = append(lines, "-- nothing happens")
	lines = append(lines, Changes(first, snapshots.Updating(), "")...)
	next := snapshots.Updating()
	next.At = snapshots.Time.Add(10 * time.Second)
	next.Progress.Done = 9
	next.Objects[1].Repairs, next.Objects[1].LastRepair = 4, report.Repair{At: next.At, Reason: report.DriftDeleted}
	next.Objects[5].State = report.StateSettled
	next.Objects[6].Message = "another message"
	next.Objects[7].State, next.Objects[7].Result, next.Objects[7].Reason, next.Objects[7].Message = report.StateWaiting, report.Created, "NotReady", "0 of 3 pods"
	lines = append(lines, "-- ten seconds later")
	lines = append(lines, Changes(first, next, "")...)
	lines = append(lines, "-- of dns alone")
	lines = append(lines, Changes(first, next, "dns")...)
	lines = append(lines, "-- before the first pass has ended")
	lines = append(lines, Changes(nil, snapshots.Outline(), "")...)
	golden.Assert(t, "status-changes", strings.Join(lines, "\n")+"\n")
}

func TestClusterVersionIsDescribedWithoutItsOperator(t *testing.T) {
	at := metav1.NewTime(snapshots.Before(3 * time.Minute))
	cv := &configv1.ClusterVersion{Status: configv1.ClusterVersionStatus{
		Desired: configv1.Release{Version: "1.1.0", Image: "registry.example/release@sha256:00"},
		History: []configv1.UpdateHistory{{State: configv1.PartialUpdate, Version: "1.1.0", StartedTime: at}, {State: configv1.CompletedUpdate, Version: "1.0.0"}},
		Conditions: []configv1.ClusterOperatorStatusCondition{
			{Type: "Failing", Status: "False", LastTransitionTime: at},
			{Type: configv1.OperatorProgressing, Status: "True", LastTransitionTime: at, Message: "Working towards 1.1.0: 7 of 12 done (58% complete), waiting on dns"},
			{Type: "RetrievedUpdates", Status: "False", LastTransitionTime: at, Message: "of no interest here"},
		},
	}}
	golden.Assert(t, "status-instead", strings.Join(OfClusterVersion(cv, snapshots.Time), "\n")+"\n")
	assert.Equal(t, "Release  none yet", OfClusterVersion(&configv1.ClusterVersion{}, snapshots.Time)[0])
	cv.DeletionTimestamp, cv.Finalizers = &at, []string{metav1.FinalizerOrphanDependents}
	assert.Contains(t, strings.Join(OfClusterVersion(cv, snapshots.Time), "\n"), " is being deleted and waits for its finalizers orphan (kube-controller-manager removes it): ")
}

func TestTreeReportsARejectedRelease(t *testing.T) {
	s := snapshots.Complete()
	assert.NotContains(t, strings.Join(View{}.Lines(s), "\n"), "rejected")
	before := snapshots.Complete()
	s.Rejected = "Retrieving payload failed version=\"1.2.0\"\nsigned by no key\x1b[2J"
	assert.Contains(t, View{}.Lines(s)[3], `Requested release rejected: Retrieving payload failed version="1.2.0" signed by no key`)
	assert.NotContains(t, strings.Join(View{}.Lines(s), "\n"), "\x1b")
	changes := Changes(before, s, "")
	assert.Len(t, changes, 1)
	assert.Contains(t, changes[0], `; requested release rejected: Retrieving payload failed version="1.2.0" signed by no key`)
}
