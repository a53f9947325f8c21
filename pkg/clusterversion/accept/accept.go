// Package accept decides whether a release may be rolled out. It retrieves, verifies and loads the release, then checks the preconditions
// and the operator's permissions. It takes a target and a ClusterVersion and returns an Acceptance. It keeps nothing between calls: the
// question and its answer are a Decision, which its caller keeps.
package accept

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/clusterversion/history"
	"github.com/cluster-version/cvo/pkg/clusterversion/identity"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/engine/permission"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/precondition"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
	"github.com/cluster-version/cvo/pkg/verify"
)

const (
	// MaxPause is the longest pause between two checks of a rejected release.
	MaxPause = 2 * time.Minute
	// RecheckWithin is the longest time between two results of these checks: the pause, the search for signatures, and the lookup of an
	// image without any.
	RecheckWithin = MaxPause + verify.DefaultSearchTimeout + verify.DefaultStoreTimeout
	// retrieveTimeout bounds one attempt to retrieve a release, so that a slow mirror cannot hide the failure. It exceeds the deadline of a
	// retrieval Job, which knows more about its failure. The next attempt uses the layers that are complete in the cache.
	retrieveTimeout = 30 * time.Minute
)

var errRetrieveTimeout = fmt.Errorf("not retrieved within %s: %w", retrieveTimeout, context.DeadlineExceeded)

// Outside retrieves release images and verifies their signatures with the cluster's current configuration.
type Outside interface {
	Resolve(ctx context.Context, pullspec string) (release.Image, error)
	Manifests(ctx context.Context, img release.Image) (fs.FS, error)
	// Verifier returns the verifier of an image. running is the payload that the cluster runs, nil before the first.
	Verifier(ctx context.Context, img release.Image, running *payload.Payload) (Verifier, error)
}

// Verifier verifies an image and returns the evidence of its signers. *verify.Verifier implements it.
type Verifier interface {
	Verify(ctx context.Context, img release.Image) ([]release.Evidence, error)
}

// Stages are the collaborators of acceptance.
type Stages struct {
	// Outside returns the access to registries and signatures for the given ClusterVersion.
	Outside func(ctx context.Context, cv *configv1.ClusterVersion) (Outside, error)
	// Local is the file system with the operator's own release, nil if the operator pulls it like any other release.
	Local fs.FS
	// Settings returns the settings that select the manifests of this cluster, as of the last watch event. It makes no request.
	Settings func() Settings
	// Cluster returns the cluster state that blocks updates to another minor version, as of the last watch event. It makes no request. Nil
	// blocks nothing.
	Cluster func() upgradeable.Cluster
	// Server returns the version of the API server and the APIs that it serves, within a bounded time. If it is nil, both are unknown.
	Server func(ctx context.Context) precondition.Server

	// Permit ensures that the operator has the permissions to apply the target payload. running is the payload before it, nil if there is
	// none. If the operator may not grant itself the missing permissions, the error is a *permission.Error that lists them. If Permit is
	// nil, permissions are not checked.
	Permit func(ctx context.Context, running, target *payload.Payload) error

	// Successor returns why the operator of a release could not replace this process, nil if it could. If Successor is nil, no release
	// replaces this process and the check is skipped.
	Successor func(ctx context.Context, cv *configv1.ClusterVersion, img release.Image, p *payload.Payload) error

	// NamesService reports that the operator was started with an update service. The reconciler sets it.
	NamesService bool

	// Obstacles returns the current obstacles of the cluster; nil means none. The reconciler sets it.
	Obstacles func(cv *configv1.ClusterVersion) []upgradeable.Obstacle
}

// Acceptance is the progress and the result of accepting a target. Only the steps of walk change it, and they work on a copy.
type Acceptance struct {
	Target request.Target
	// Step is the running or failed step, as a reason of the ReleaseAccepted condition.
	Step    string
	Message string
	// Err is the reason for the rejection; nil while running and when accepted.
	Err error
	// Done reports that the target is accepted and the fields below are set.
	Done     bool
	Verified release.Verified
	// Update is the loaded release as this cluster gets it.
	payload.Update
	// Warned are the objections of preconditions that did not block the target.
	Warned string
	// Risks are the objections that force overrode or that are only warnings. The history records them.
	Risks string

	// ForcedPast are the failed checks that force overrode.
	ForcedPast []api.ForcedCheck

	files fs.FS
	// Obstacles are the obstacles that existed when the preconditions were checked.
	Obstacles []upgradeable.Obstacle
	// Undecided is true if the preconditions reject the release only because of pending obstacles.
	Undecided bool
}

// Loaded reports whether the release is verified and read. After that, only preconditions and permissions can reject it.
func (a Acceptance) Loaded() bool {
	return a.Payload != nil && (a.Done || a.Step == api.ReasonPreconditionChecks || a.Step == api.ReasonPermissions)
}

// Image returns the image for the status: with its digest once the pullspec is resolved, until then the requested pullspec.
func (a Acceptance) Image() string {
	if a.Verified.Digest == "" {
		return a.Target.Image
	}
	return a.Verified.ByDigest()
}

// Nothing returns why the release has no manifest for this cluster. It is empty if the release has one or is not read yet.
func (a Acceptance) Nothing() string {
	if a.Payload == nil {
		return ""
	}
	return a.Payload.Nothing()
}

// Answered reports whether the target was accepted or rejected.
func (a Acceptance) Answered() bool { return a.Done || a.Err != nil }

// Rejected returns the acceptance with the failure err, although all its steps succeeded.
func (a Acceptance) Rejected(err error) Acceptance {
	a.Done, a.Step, a.Err = false, api.ReasonRetrievePayload, err
	a.Message = event.Steady(fmt.Sprintf("Retrieving payload failed %s failure=%v", a.Describe(), err))
	return a
}

// Delayed returns the acceptance as pending for a reason, although all its steps succeeded.
func (a Acceptance) Delayed(reason error) Acceptance {
	a.Done, a.Step = false, api.ReasonRetrievePayload
	a.Message = event.Steady(fmt.Sprintf("Waiting to record payload %s: %v", a.Describe(), reason))
	return a
}

// Describe returns the name of a release for messages.
func (a Acceptance) Describe() string {
	return fmt.Sprintf("version=%q image=%q", a.Target.Version, a.Target.Image)
}

// forcedText describes an image whose failed verification was overridden by force.
func (a Acceptance) forcedText() string {
	return event.Steady(identity.ForcedText(a.Describe(), a.Verified.Forced))
}

// step is one step of an acceptance. run changes the acceptance or returns the reason for the rejection.
type step struct {
	name string
	// running and failed are the prefixes of the messages about the step.
	running, failed string
	run             func(ctx context.Context, in Input, a *Acceptance) error
}

// Input holds the values that decide whether a target is accepted.
type Input struct {
	Stages
	ClusterVersion *configv1.ClusterVersion
	Settings       Settings
	// Running is the release that is rolled out; nil before the first release of the process.
	Running *Acceptance
	// Known is the evidence of an earlier acceptance of the release, which makes another verification unnecessary; nil for none.
	Known *release.Verified
	// Identity maps requests to content. Unrecorded is the reason why a request by tag cannot be recorded, nil if it can.
	Identity   identity.Identity
	Unrecorded error
	// Own is the image of the operator's own release.
	Own string
}

// steps returns the steps of an acceptance in order. No step reads an image before its signature is checked, and the preconditions are
// checked only when the payload is known to be complete.
func steps() []step {
	return []step{retrieveStep, loadStep, versionStep, preconditionStep}
}

var (
	retrieveStep = step{api.ReasonRetrievePayload, "Retrieving and verifying payload", "Retrieving payload failed", retrieve}
	// verifyStep is retrieveStep for a release that has been retrieved before.
	verifyStep       = step{retrieveStep.name, retrieveStep.running, retrieveStep.failed, verifyAgain}
	loadStep         = step{api.ReasonLoadPayload, "Loading payload", "Loading payload failed", load}
	versionStep      = step{api.ReasonVerifyPayloadVersion, "Verifying payload version", "Verifying payload failed", checkVersion}
	preconditionStep = step{api.ReasonPreconditionChecks, "Checking preconditions for payload", "Preconditions failed for payload loaded", checkPreconditions}
	// permitStep is always the last step, because it may change the operator's permissions.
	permitStep = step{api.ReasonPermissions, "Checking permissions for payload", "Permissions missing for payload loaded", permit}
)

// Run runs the steps and returns the result. It calls report at the start of each step.
func Run(ctx context.Context, in Input, target request.Target, report func(Acceptance)) Acceptance {
	return walk(ctx, in, Acceptance{Target: target}, append(steps(), permitStep), Hooks{Begins: report}).accepted()
}

// Again repeats the preconditions for a release that they have rejected, without retrieving or reading it again. If they pass now, Again
// verifies the release once more: the rejection may be days old, and the trusted signers may have changed.
func Again(ctx context.Context, in Input, a Acceptance, report func(Acceptance)) Acceptance {
	a.Err = nil
	a.recordVerification()
	return walk(ctx, in, a, []step{preconditionStep, verifyStep, permitStep}, Hooks{Begins: report}).accepted()
}

// Examine runs the steps for a release that is not rolled out. It changes no permissions, and an error that the hooks drop
// does not end it. The result is never Done.
func Examine(ctx context.Context, in Input, target request.Target, hooks Hooks) Acceptance {
	return walk(ctx, in, Acceptance{Target: target}, steps(), hooks)
}

// Read verifies and reads a release of the history that is not rolled out, such as the one before the update.
func Read(ctx context.Context, in Input, target request.Target) (payload.Update, error) {
	in.Successor = nil
	a := walk(ctx, in, Acceptance{Target: target}, []step{retrieveStep, loadStep}, Hooks{})
	return a.Update, a.Err
}

// Hooks follow the steps of an acceptance. A nil hook does nothing.
type Hooks struct {
	// Begins is called at the beginning of each step.
	Begins func(Acceptance)
	// Ends is called with the result of each step. The error that it returns rejects the release.
	Ends func(Acceptance, error) error
}

// walk runs steps until one rejects the release.
func walk(ctx context.Context, in Input, a Acceptance, steps []step, hooks Hooks) Acceptance {
	for _, step := range steps {
		a.Step, a.Message = step.name, step.running+" "+a.Describe()
		if hooks.Begins != nil {
			hooks.Begins(a)
		}
		err := step.run(ctx, in, &a)
		if hooks.Ends != nil {
			err = hooks.Ends(a, err)
		}
		if err == nil {
			continue
		}
		if a.Target.Continued {
			err = &continuedError{err}
		}
		a.Err = err
		separator := " failure="
		if step.name == api.ReasonPreconditionChecks || step.name == api.ReasonPermissions {
			separator = ": "
		}
		a.Message = event.Steady(fmt.Sprintf("%s %s%s%v", step.failed, a.Describe(), separator, err))
		break
	}
	a.files = nil // the result is kept; only the steps need the files
	return a
}

// accepted returns an acceptance that no step has rejected as done.
func (a Acceptance) accepted() Acceptance {
	if a.Err != nil {
		return a
	}
	a.Done, a.Step = true, api.ReasonPayloadLoaded
	a.Message = fmt.Sprintf("Payload loaded version=%q image=%q architecture=%q", a.Payload.Release.Version, a.Target.Image, a.Payload.Release.Architecture)
	if nothing := a.Nothing(); nothing != "" {
		a.Message += api.AcceptedWarning + nothing
	}
	return a
}

// retrieve resolves the pullspec, verifies the digest, and only then reads the image. It does not verify a release that was accepted
// before; if the cache has the release, this needs no request.
func retrieve(ctx context.Context, in Input, a *Acceptance) error {
	if a.Target.Own && in.Local != nil {
		a.files = in.Local
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, retrieveTimeout, errRetrieveTimeout)
	defer cancel()
	if in.Unrecorded != nil && request.IsTag(a.Target.Named()) {
		return &stepError{"Unable to download and prepare the update", in.Unrecorded}
	}
	outside, err := in.Outside(ctx, in.ClusterVersion)
	if err != nil {
		return &stepError{"Unable to download and prepare the update", err}
	}
	if in.Known != nil {
		a.Verified = *in.Known
	} else if err := in.resolve(ctx, outside, a); err != nil {
		return err
	}
	a.recordVerification()
	if a.files, err = outside.Manifests(ctx, a.Verified.Image); err != nil {
		return &stepError{"Unable to download and prepare the update", err}
	}
	return nil
}

// recordVerification sets what the verification contributes to the record of the acceptance, and removes what later steps added in an earlier
// attempt.
func (a *Acceptance) recordVerification() {
	a.Warned, a.Risks, a.ForcedPast = "", "", nil
	if a.IsForced() {
		a.Risks = a.forcedText()
		a.ForcedPast = []api.ForcedCheck{{What: api.ForcedVerification, Why: a.Verified.Forced.Error()}}
	}
}

// resolve resolves the pullspec to a digest and verifies its signatures.
func (in Input) resolve(ctx context.Context, outside Outside, a *Acceptance) error {
	img, err := outside.Resolve(ctx, a.Target.Named())
	if err != nil {
		return &stepError{"Unable to download and prepare the update", err}
	}
	img.Pullspec = a.Target.Image
	a.Verified = release.Verified{Image: img}
	if err := in.Identity.Covers(a.Target, img.Digest); err != nil {
		return &stepError{"The update cannot be verified", err}
	}
	if a.Verified.Evidence, err = in.verify(ctx, outside, img); err != nil {
		if !a.Target.Force || ctx.Err() != nil {
			return &stepError{"The update cannot be verified", in.explainForce(a.Target, err)}
		}
		a.Verified = verify.ForceUnsafe(img, err)
	}
	return nil
}

// IsForced reports whether force overrode a failed verification.
func (a Acceptance) IsForced() bool { return a.Verified.Forced != nil }

// verifyAgain verifies the digest of a release that was verified earlier for the same request. A forced release stays forced.
func verifyAgain(ctx context.Context, in Input, a *Acceptance) error {
	if in.Known != nil || a.IsForced() || a.Verified.Digest == "" {
		return nil
	}
	outside, err := in.Outside(ctx, in.ClusterVersion)
	if err != nil {
		return &stepError{"Unable to download and prepare the update", err}
	}
	evidence, err := in.verify(ctx, outside, a.Verified.Image)
	if err != nil {
		return &stepError{"The update cannot be verified", in.explainForce(a.Target, err)}
	}
	a.Verified.Evidence = evidence
	return nil
}

// explainForce adds to a verification failure the reason why the requested force does not count.
func (in Input) explainForce(t request.Target, err error) error {
	update := in.ClusterVersion.Spec.DesiredUpdate
	if t.Force || !t.Requested || update == nil || !update.Force {
		return err
	}
	return fmt.Errorf("%w; the requested force does not count, because its record is missing: to apply this release, set spec.desiredUpdate.image to its digest and keep force", err)
}

// verify returns the evidence of an image's signers. The trusted keys are those of the running release unless an administrator configured
// others. Before it runs one, a process with the files of its own release (see Stages.Local) uses the keys in these.
func (in Input) verify(ctx context.Context, outside Outside, img release.Image) ([]release.Evidence, error) {
	running := in.runningPayload()
	if running == nil && in.Local != nil {
		own, err := in.load(in.Local, in.Own)
		if err != nil {
			return nil, err
		}
		running = own.Payload
	}
	verifier, err := outside.Verifier(ctx, img, running)
	if err != nil {
		return nil, err
	}
	return verifier.Verify(ctx, img)
}

func (in Input) runningPayload() *payload.Payload {
	if in.Running == nil {
		return nil
	}
	return in.Running.Payload
}

// load reads a release and returns the manifests that this cluster gets. It ignores overrides: the rollout applies them, so an
// administrator can exclude an object without the release being read again.
func (in Input) load(files fs.FS, image string) (payload.Update, error) {
	var stay []configv1.ClusterVersionCapability
	var running func() ([]*manifest.Manifest, error)
	if in.Running != nil {
		stay = in.Running.Filter.Capabilities.Enabled.UnsortedList()
		running = func() ([]*manifest.Manifest, error) { return in.Running.Payload.Manifests, nil }
	}
	filter := func(version string) inclusion.Filter {
		filter := in.Settings.Filter(in.ClusterVersion, version, stay...)
		filter.Overrides = nil
		return filter
	}
	opts := payload.Options{Running: in.runningPayload(), BringYourOwnNetwork: in.Settings.BringYourOwnNetwork}
	return payload.LoadUpdate(files, image, opts, filter, running)
}

// load is the step that reads the payload.
func load(ctx context.Context, in Input, a *Acceptance) error {
	var err error
	a.Update, err = in.load(a.files, a.Image())
	if err != nil || in.Successor == nil || a.Target.Own {
		return err
	}
	return in.Successor(ctx, in.ClusterVersion, a.Verified.Image, a.Payload)
}

func checkVersion(_ context.Context, _ Input, a *Acceptance) error {
	if got := a.Payload.Release.Version; a.Target.Version != "" && a.Target.Version != got {
		return fmt.Errorf("release image version %s does not match the expected upstream version %s", got, a.Target.Version)
	}
	a.Target.Version = a.Payload.Release.Version
	return nil
}

// checkPreconditions is the step that checks the preconditions. They apply only when an update starts. A rejection names pending obstacles
// only if there is no other reason.
func checkPreconditions(ctx context.Context, in Input, a *Acceptance) error {
	a.Undecided = false
	if in.underway(a) {
		return nil
	}
	checks, input := precondition.All(), in.preconditions(ctx, a)
	if a.Target.Requested && history.Mode(in.ClusterVersion, "") == release.Initializing {
		checks, input.Installing = precondition.Install(), true
	}
	objections := precondition.Run(checks, input)
	blocking := precondition.Error(precondition.Blocking(objections))
	if blocking != nil && !a.Target.Force {
		if !upgradeable.Pending(a.Obstacles) {
			return blocking
		}
		known := slices.DeleteFunc(slices.Clone(a.Obstacles), func(o upgradeable.Obstacle) bool { return o.Pending })
		input.Accepted, input.Upgradeable = in.weigh(known)
		if certain := precondition.Error(precondition.Blocking(precondition.Run(checks, input))); certain != nil {
			return certain
		}
		a.Undecided = true
		return blocking
	}
	if all := precondition.Error(objections); all != nil {
		text := all.Error()
		if blocking != nil {
			text = "Forced through blocking failures: " + text
			a.ForcedPast = append(a.ForcedPast, api.ForcedCheck{What: api.ForcedPreconditions, Why: blocking.Error()})
		}
		a.Warned, a.Risks = text, joinRisks(a.Risks, text)
	}
	return nil
}

// underway reports whether accepting the target starts no update. This holds for the newest release of the history, the release in the
// inventory, a rollback to the previous release by digest, and the operator's own release until one has completed.
func (in Input) underway(a *Acceptance) bool {
	entries := in.ClusterVersion.Status.History
	if a.Target.Continued || a.Target.Return && !a.ByTag() || len(entries) > 0 && entries[0].Image == a.Image() {
		return true
	}
	return a.Target.Own && history.Mode(in.ClusterVersion, a.Image()) == release.Initializing
}

// permit is the step that ensures that the operator has the permissions to apply the release. Missing permissions do not block a release
// that is already under way: its rollout reports the objects that it may not apply and continues with the others.
func permit(ctx context.Context, in Input, a *Acceptance) error {
	if in.Permit == nil {
		return nil
	}
	err := in.Permit(ctx, in.runningPayload(), a.Payload)
	missing, refused := errors.AsType[*permission.Error](err)
	switch {
	case err == nil, in.underway(a):
		return nil
	case refused && a.Target.Force:
		a.Warned = joinRisks(a.Warned, missing.Error())
		a.Risks = joinRisks(a.Risks, "Forced despite missing permissions: "+missing.Error())
		a.ForcedPast = append(a.ForcedPast, api.ForcedCheck{What: api.ForcedPermissions, Why: missing.Error()})
		return nil
	}
	return err
}

func joinRisks(a, b string) string {
	if a == "" {
		return b
	}
	return a + "\n" + b
}

// stepError is an error with a prefix from OpenShift's operator.
type stepError struct {
	text string
	err  error
}

func (e *stepError) Error() string { return e.text + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// IsTransient reports whether a retry may succeed although the ClusterVersion is unchanged. A broken payload or a wrong version is a
// permanent failure, unless the request names a tag, which may point to another image later.
func IsTransient(a Acceptance) bool {
	var broken *payload.Error
	fixed := a.Step == api.ReasonVerifyPayloadVersion || errors.As(a.Err, &broken)
	return a.Err != nil && (!fixed || a.ByTag())
}

// ByTag reports whether the target names a tag, which may point to another image later.
func (a Acceptance) ByTag() bool { return a.Verified.Digest != "" && a.Target.Named() != a.Image() }

// Managed returns the manifests that the spec's overrides do not exclude.
func Managed(a Acceptance, overrides []configv1.ComponentOverride) []*manifest.Manifest {
	if len(overrides) == 0 {
		return a.Payload.Manifests
	}
	filter := a.Filter
	filter.Overrides = overrides
	return slices.DeleteFunc(slices.Clone(a.Payload.Manifests), func(m *manifest.Manifest) bool {
		_, excluded := filter.Exclude(m)
		return excluded
	})
}

// continuedError explains why a release is unavailable when the cluster continues with it after its ClusterVersion was recreated.
type continuedError struct{ err error }

func (e *continuedError) Error() string {
	return fmt.Sprintf("%v; the inventory names this release, so the cluster continues with it after its ClusterVersion was recreated: "+
		"make the release available and trusted, or request it by digest in spec.desiredUpdate (with force if no one signed it), "+
		"or delete the ConfigMaps with label %s and restart the operator to install its own release", e.err, api.InventoryLabel)
}

func (e *continuedError) Unwrap() error { return e.err }

// VerifiedBefore returns the evidence of an earlier acceptance of a target, from this process or from the record. It is nil if the target
// needs verification.
func (in Input) VerifiedBefore(running *Acceptance, target request.Target) *release.Verified {
	if running != nil && running.Verified.Digest != "" && running.Image() == target.Named() {
		return &running.Verified
	}
	if verified, ok := in.Identity.VerifiedBefore(in.ClusterVersion, target); ok {
		return &verified
	}
	return nil
}

// Identified returns the acceptance in the form that the identity records.
func (a Acceptance) Identified() identity.Accepted {
	return identity.Accepted{
		Target: a.Target, Verified: a.Verified, Version: a.Payload.Release.Version, Image: a.Image(), ForcedPast: a.ForcedPast,
	}
}

// HistoryEntry returns the acceptance in the form that the history records.
func (a Acceptance) HistoryEntry() history.Release {
	return history.Release{
		Version: a.Payload.Release.Version, Image: a.Image(), Verified: len(a.Verified.Evidence) > 0, AcceptedRisks: a.Risks,
	}
}
