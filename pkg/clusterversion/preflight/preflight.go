// Package preflight examines a release without rolling it out. It runs the steps of acceptance, and then dry runs of every object even if
// the preconditions reject the release. It returns an account of bounded size for the ReleaseRollout.
package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/clusterversion/identity"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/images"
	"github.com/cluster-version/cvo/pkg/update/precondition"
)

// Preview reports what an update to a release would change in the cluster. Its dry runs store nothing.
// running are the manifests of the running release; nil if unknown.
type Preview func(ctx context.Context, cv *configv1.ClusterVersion, running []*manifest.Manifest, p *payload.Payload) (*preview.Report, error)

// Lookup looks up images with the cluster's current configuration; see image.Reader.Exist.
type Lookup func(ctx context.Context, cv *configv1.ClusterVersion, images []release.Image) ([]error, error)

// Without returns the ClusterVersion without a request for a preflight, and the release to examine, nil for none. A preflight changes
// nothing, so the cluster continues its current work. In particular, it does not cancel an update under way, although an empty request
// would.
func Without(cv *configv1.ClusterVersion, own string) (rest *configv1.ClusterVersion, target *request.Target) {
	update := cv.Spec.DesiredUpdate
	if update == nil || update.Mode != configv1.UpdateModePreflight {
		return cv, nil
	}
	if len(cv.Status.History) > 0 {
		asked := request.Asked(cv, own, false)
		asked.Own, asked.Requested = asked.Image == own, false
		target = &asked
	}
	rest = cv.DeepCopy()
	rest.Spec.DesiredUpdate = nil
	return rest, target
}

// Flight is a running preflight.
type Flight struct {
	Input      accept.Input
	Acceptance accept.Acceptance
	Preview    Preview
	// Lookup is nil if the operator does not contact registries.
	Lookup  Lookup
	Account api.Preflight
	// Report is called with the account at the start of each step; nil for no call.
	Report func(api.Preflight)
}

// excerpt returns a text of at most limit bytes without characters that a terminal interprets. It may quote a release or a server.
func excerpt(text string, limit int) string { return printable.Excerpt(printable.Lines(text), limit) }

// New returns the preflight of a target that starts now.
func New(in accept.Input, target request.Target, preview Preview, lookup Lookup, now metav1.Time) *Flight {
	return &Flight{Input: in, Acceptance: accept.Acceptance{Target: target}, Preview: preview, Lookup: lookup, Account: api.Preflight{
		Version: excerpt(target.Version, maxVersion), Image: excerpt(target.Image, api.ReleaseRolloutText), State: api.PreflightRunning, StartedAt: now,
	}}
}

// Run runs the steps of acceptance, and then dry runs even if the preconditions reject the release. It fails before the dry runs if the
// preconditions depend on pending obstacles. It reports whether another attempt may have a different result.
func (f *Flight) Run(ctx context.Context) (again bool) {
	f.Acceptance = accept.Examine(ctx, f.Input, f.Acceptance.Target, accept.Hooks{
		Begins: func(a accept.Acceptance) { f.begin(a.Step, a.Message) },
		Ends: func(a accept.Acceptance, err error) error {
			f.learn(a)
			if failed, ok := errors.AsType[*precondition.FailedError](err); ok && !a.Undecided {
				f.object(failed.Objections)
				return nil
			}
			return err
		},
	})
	if f.Acceptance.Err != nil {
		f.Account.State, f.Account.Message = api.PreflightFailed, excerpt(f.Acceptance.Message, api.ReleaseRolloutText)
		return accept.IsTransient(f.Acceptance)
	}
	f.begin(api.PreflightDryRun, "Looking up the images and dry-running each object of "+f.Acceptance.Describe())
	managed := *f.Acceptance.Payload
	managed.Manifests = accept.Managed(f.Acceptance, f.Input.ClusterVersion.Spec.Overrides)
	var running []*manifest.Manifest
	if before := f.Input.Running; before != nil && before.Payload != nil {
		running = before.Payload.Manifests
	}
	found := images.Find(ctx, release.Pullspec(managed.Release.Image), managed.Manifests, running, f.lookup)
	report, err := f.Preview(ctx, f.Input.ClusterVersion, running, &managed)
	if err != nil {
		f.Account.State, f.Account.Message = api.PreflightFailed, excerpt(err.Error(), api.ReleaseRolloutText)
		return true
	}
	f.Account.Changes = changesOf(report)
	return f.judge(report, found)
}

func (f *Flight) lookup(ctx context.Context, images []release.Image) ([]error, error) {
	if f.Lookup == nil {
		return nil, errors.New("images by digest, because this operator does not contact registries")
	}
	return f.Lookup(ctx, f.Input.ClusterVersion, images)
}

func (f *Flight) begin(step, message string) {
	f.Account.Step, f.Account.Message = step, excerpt(message, api.ReleaseRolloutText)
	if f.Report != nil {
		f.Report(f.Account)
	}
}

// learn copies the result of a step into the account.
func (f *Flight) learn(a accept.Acceptance) {
	f.Account.Image = excerpt(a.Image(), api.ReleaseRolloutText)
	f.Account.Version = excerpt(a.Target.Version, maxVersion)
	f.Account.VerifiedBy = identity.RecordedEvidence(a.Verified.Evidence[:min(len(a.Verified.Evidence), maxSigners)])
	if a.IsForced() {
		f.Account.Forced = excerpt(a.Verified.Forced.Error(), api.ReleaseRolloutText)
	}
	if a.Warned != "" && len(f.Account.Preconditions) == 0 {
		f.Account.Preconditions = []api.PreflightObjection{{
			Name: "Warnings", Reason: "PreconditionWarn", Message: excerpt(a.Warned, api.ReleaseRolloutText),
		}}
	}
}

func (f *Flight) object(objections []precondition.Objection) {
	f.Account.Preconditions = nil
	for _, o := range objections[:min(len(objections), maxObjections)] {
		f.Account.Preconditions = append(f.Account.Preconditions, api.PreflightObjection{
			Name: o.Check, Reason: cmp.Or(o.Reason, "Unknown"), Message: excerpt(o.Message, api.ReleaseRolloutText), Blocking: !o.Warning,
		})
	}
}

// Bounds of the account from the definition of ReleaseRollout.
const (
	maxObjections = 32
	maxSigners    = 32
	maxVersion    = 256
)

// judge sets the result of the preflight. It reports whether a retry may reach objects that this attempt could not check.
func (f *Flight) judge(report *preview.Report, found images.Found) (again bool) {
	var blocking, against []string
	for _, o := range f.Account.Preconditions {
		if o.Blocking {
			blocking = append(blocking, o.Name)
		}
	}
	if len(blocking) > 0 {
		against = append(against, "preconditions that would block the update: "+strings.Join(blocking, ", "))
	}
	if report.Totals.Refused > 0 {
		against = append(against, "objects that the API server would reject: "+counted(report, preview.Refuse, report.Totals.Refused))
	}
	if len(found.Missing) > 0 {
		against = append(against, "images that nodes cannot pull: "+listed(found.Missing))
	}
	t := report.Totals
	f.Account.Message = fmt.Sprintf("objects to create: %d, to change: %d, to delete: %d, to recreate: %d, unknown: %s",
		t.Created, t.Changed, t.Deleted+t.Pruned, t.Recreated, counted(report, preview.Unknown, t.Unknown))
	if enables := f.Acceptance.EnablesText(); enables != "" {
		f.Account.Message += "; " + enables
	}
	if len(found.Unknown) > 0 {
		f.Account.Message += "; images that could not be looked up: " + listed(found.Unknown)
	}
	f.Account.State = api.PreflightPassed
	if len(against) > 0 {
		f.Account.State = api.PreflightObjected
	}
	if t.NotAsked > 0 {
		f.Account.State = api.PreflightFailed
		against = append(against, "objects that could not be checked: "+counted(report, preview.NotAsked, t.NotAsked))
	}
	f.Account.Message = strings.Join(append(against, f.Account.Message), "; ")
	f.Account.Message = excerpt(f.Account.Message, api.ReleaseRolloutText)
	return t.NotAsked > 0
}

// listed returns the first images as text.
func listed(images []preview.Image) string {
	texts := make([]string, len(images))
	for i, image := range images {
		texts[i] = image.String()
	}
	return printable.List(texts, printable.Few)
}

// counted returns the number of objects with a verdict, and the first of them with its message.
func counted(report *preview.Report, verdict preview.Verdict, n int) string {
	first := slices.IndexFunc(report.Objects, func(o preview.Object) bool { return o.Verdict == verdict })
	if first < 0 {
		return strconv.Itoa(n)
	}
	o := report.Objects[first]
	return fmt.Sprintf("%d, first %s: %s", n, o.ID, excerpt(o.Message, maxObjectMessage))
}

// changesOf summarizes a report.
func changesOf(report *preview.Report) *api.PreflightChanges {
	t := report.Totals
	objects := slices.DeleteFunc(slices.Clone(report.Objects), func(o preview.Object) bool { return o.Verdict == preview.Nothing })
	count := func(n int) int32 { return int32(min(n, 1<<30)) } // bounded
	out := &api.PreflightChanges{
		Created: count(t.Created), Changed: count(t.Changed), Deleted: count(t.Deleted + t.Pruned), Recreated: count(t.Recreated),
		Refused: count(t.Refused), Unchanged: count(t.Unchanged), Unknown: count(t.Unknown + t.NotAsked), ObjectCount: count(len(objects) + t.Pruned),
	}
	for _, o := range report.Orphans {
		if o.Pruned {
			objects = append(objects, preview.Object{
				ID: o.ID, Verdict: preview.Delete, Message: "once the update is complete, because the release no longer contains it",
			})
		}
	}
	sorted.By(objects, func(a, b preview.Object) int { return cmp.Compare(rankVerdict(a.Verdict), rankVerdict(b.Verdict)) })
	for _, o := range objects[:min(len(objects), api.ReleaseRolloutObjects)] {
		out.Objects = append(out.Objects, api.PreflightObject{
			Object: excerpt(o.ID.String(), maxObjectName), Runlevel: count(o.Runlevel), Verdict: string(o.Verdict), Message: excerpt(messageOf(o), maxObjectMessage),
		})
	}
	return out
}

const (
	maxObjectName    = 1024
	maxObjectMessage = 512
)

// rankVerdict sorts verdicts that prevent an update from completing to the front.
func rankVerdict(v preview.Verdict) int {
	switch v {
	case preview.Refuse:
		return 0
	case preview.NotAsked, preview.Unknown:
		return 1
	case preview.Delete, preview.Recreate:
		return 2
	case preview.Create, preview.Modify, preview.Nothing:
	}
	return 3
}

func messageOf(o preview.Object) string {
	parts := make([]string, 0, len(o.Fields)+2)
	for _, f := range o.Fields {
		parts = append(parts, f.Path)
	}
	for _, text := range []string{o.Message, o.Remedy} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, ", ")
}

// Started returns the event for the start of a preflight.
func Started(a accept.Acceptance) event.Event {
	return event.Normal(api.EventPreflightStarted, "Started a preflight of %s", a.Describe())
}

// Ended returns the event for the result of a preflight.
func Ended(p api.Preflight) event.Event {
	name := fmt.Sprintf("version=%q image=%q", p.Version, p.Image)
	switch p.State {
	case api.PreflightPassed:
		return event.Normal(api.EventPreflightPassed, "The preflight of %s passed: %s", name, p.Message)
	case api.PreflightObjected:
		return event.Warning(api.EventPreflightObjected, "The preflight of %s found obstacles: %s", name, p.Message)
	}
	return event.Warning(api.EventPreflightFailed, "The preflight failed at step %s: %s", p.Step, p.Message)
}
