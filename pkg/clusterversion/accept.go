package clusterversion

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/permission"
	"github.com/cluster-version/cvo/pkg/precondition"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/upgradeable"
	"github.com/cluster-version/cvo/pkg/verify"
)

// Outside is where release images come from, as the cluster's configuration has it at the time.
type Outside interface {
	Resolve(ctx context.Context, pullspec string) (release.Image, error)
	Manifests(ctx context.Context, img release.Image) (fs.FS, error)
	// Verifier returns what to verify an image with, given the payload that the cluster runs, nil before the first.
	Verifier(ctx context.Context, img release.Image, running *payload.Payload) (Verifier, error)
}

// Verifier tells who signed an image; *verify.Verifier is one.
type Verifier interface {
	Verify(ctx context.Context, img release.Image) ([]release.Evidence, error)
}

// Stages are the collaborators of acceptance.
type Stages struct {
	// Outside opens the way to registries and signatures.
	Outside func(ctx context.Context, cv *configv1.ClusterVersion) (Outside, error)
	// Record keeps who signed what; nil keeps nothing.
	Record Record
	// Local is the file system that holds the operator's own release, nil if that is pulled like any other.
	Local fs.FS
	// Settings returns what decides which manifests this cluster gets, as watches have told it. It makes no request.
	Settings func() Settings
	// Cluster returns what others in the cluster say against updates to another minor version, as watches have told it. It
	// makes no request; nil hears nobody.
	Cluster func() upgradeable.Cluster
	// Server finds out what the API server is and serves, in bounded time; nil finds out nothing.
	Server func(ctx context.Context) precondition.Server

	// Permit sees to it that the operator may do what applying a payload takes; running is the one before, nil if there is
	// none. Where it is not allowed to see to that, the
	// error is a *permission.Error, which says what is missing. Nil asks nobody.
	Permit func(ctx context.Context, running, target *payload.Payload) error

	// Successor tells why the operator of a release could not take over from this process, where the release brings one that
	// replaces it; nil if no release replaces this process.
	Successor func(ctx context.Context, cv *configv1.ClusterVersion, img release.Image, p *payload.Payload) error

	// obstacles are those of the cluster at the moment; nil for none.
	obstacles func(cv *configv1.ClusterVersion) []upgradeable.Obstacle
}

// Acceptance is how far a target has come on its way to being rolled out. It is a value; each step returns the next.
type Acceptance struct {
	Target Target
	// Step is the one that runs or failed: a reason of the ReleaseAccepted condition.
	Step    string
	Message string
	// Err is why the target is refused; nil while running and when accepted.
	Err error
	// Done: the target is accepted, and what follows is set.
	Done     bool
	Verified release.Verified
	Payload  *payload.Payload
	// Warned are objections of preconditions that did not hold the target up.
	Warned string
	// Risks are objections that were forced past or that are only warnings; recorded in the history.
	Risks string

	files  fs.FS
	filter manifest.Filter
	// weighed are the obstacles that there were when the preconditions were asked.
	weighed []upgradeable.Obstacle
}

// loaded reports whether the release is verified and read; what can still speak against it are preconditions.
func (a Acceptance) loaded() bool {
	return a.Payload != nil && (a.Done || a.Step == api.ReasonPreconditionChecks || a.Step == api.ReasonPermissions)
}

// Image is the image as status shows it: as it was asked for, and by digest if it was asked for by tag.
func (a Acceptance) Image() string {
	if a.Verified.Digest == "" {
		return a.Target.Image
	}
	return a.Verified.ByDigest()
}

// answered reports whether the target was accepted or refused.
func (a Acceptance) answered() bool { return a.Done || a.Err != nil }

// describe names a release in messages.
func (a Acceptance) describe() string {
	return fmt.Sprintf("version=%q image=%q", a.Target.Version, a.Target.Image)
}

// forcedText tells of an image that was forced past verification.
func (a Acceptance) forcedText() string {
	return steady(fmt.Sprintf("%s%s %s: %v", forcedStart, a.describe(), forcedReason, a.Verified.Forced))
}

// What the text says of every image that was forced past verification, as OpenShift's operator does.
const (
	forcedStart  = "Target release "
	forcedReason = "cannot be verified, but continuing anyway because the update was forced"
)

// acceptStep is one step on the way; it changes the acceptance or returns why the target is refused.
type acceptStep struct {
	name    string
	running string
	failed  string
	run     func(ctx context.Context, in acceptInput, a *Acceptance) error
}

type acceptInput struct {
	Stages
	cv       *configv1.ClusterVersion
	settings Settings
	// running is the release that is rolled out, nil before the first of the process.
	running *Acceptance
	// known is an earlier answer about the same release: its image needs no verification again.
	known *Acceptance
	// own is the image of the operator's own release.
	own string
}

// acceptSteps is the way of a target, in order: nothing of an image is read before its signature is checked, nothing
// is weighed before the payload is known to be whole.
func acceptSteps() []acceptStep {
	return []acceptStep{
		{api.ReasonRetrievePayload, "Retrieving and verifying payload", "Retrieving payload failed", retrieve},
		{api.ReasonLoadPayload, "Loading payload", "Loading payload failed", load},
		{api.ReasonVerifyPayloadVersion, "Verifying payload version", "Verifying payload failed", checkVersion},
		{api.ReasonPreconditionChecks, "Checking preconditions for payload", "Preconditions failed for payload loaded", weigh},
	}
}

// permitStep is the last one, once nothing else speaks against the target: it may change what the operator is allowed.
func permitStep() acceptStep {
	return acceptStep{api.ReasonPermissions, "Checking permissions for payload", "Permissions missing for payload loaded", permit}
}

// accept runs the steps and reports each beginning and the end.
func accept(ctx context.Context, in acceptInput, target Target, report func(Acceptance)) Acceptance {
	return acceptFrom(ctx, in, Acceptance{Target: target}, append(acceptSteps(), permitStep()), report)
}

// weighAgain asks the preconditions of a release that they have refused once more. Nothing is retrieved, verified or read
// again.
func weighAgain(ctx context.Context, in acceptInput, a Acceptance, report func(Acceptance)) Acceptance {
	a.Err = nil
	steps := acceptSteps()
	return acceptFrom(ctx, in, a, []acceptStep{steps[len(steps)-1], permitStep()}, report)
}

func acceptFrom(ctx context.Context, in acceptInput, a Acceptance, steps []acceptStep, report func(Acceptance)) Acceptance {
	for _, step := range steps {
		a.Step, a.Message = step.name, step.running+" "+a.describe()
		report(a)
		if err := step.run(ctx, in, &a); err != nil {
			a.Err, a.files = err, nil // the answer is kept, the files are needed on the way only
			separator := " failure="
			if step.name == api.ReasonPreconditionChecks || step.name == api.ReasonPermissions {
				separator = ": "
			}
			a.Message = steady(fmt.Sprintf("%s %s%s%v", step.failed, a.describe(), separator, err))
			return a
		}
	}
	a.Done, a.Step, a.files = true, api.ReasonPayloadLoaded, nil
	a.Message = fmt.Sprintf("Payload loaded version=%q image=%q architecture=%q", a.Payload.Release.Version, a.Target.Image, a.Payload.Release.Architecture)
	return a
}

// retrieve resolves the pullspec, has its digest verified, and only then reads the image. What was verified before in the
// life of this process is only read again, which costs no request as long as the cache has it.
func retrieve(ctx context.Context, in acceptInput, a *Acceptance) error {
	if a.Target.Own && in.Local != nil {
		a.files = in.Local
		return nil
	}
	outside, err := in.Outside(ctx, in.cv)
	if err != nil {
		return &stepError{"Unable to download and prepare the update", err}
	}
	if in.known != nil && in.known.Verified.Digest != "" {
		a.Verified = in.known.Verified
	} else if err := in.resolve(ctx, outside, a); err != nil {
		return err
	}
	if a.Verified.Forced != nil {
		a.Risks = a.forcedText()
	}
	if a.files, err = outside.Manifests(ctx, a.Verified.Image); err != nil {
		return &stepError{"Unable to download and prepare the update", err}
	}
	return nil
}

// resolve finds the image by its digest, and who signed that.
func (in acceptInput) resolve(ctx context.Context, outside Outside, a *Acceptance) error {
	img, err := outside.Resolve(ctx, a.Target.Image)
	if err != nil {
		return &stepError{"Unable to download and prepare the update", err}
	}
	a.Verified = release.Verified{Image: img}
	if a.Verified.Evidence, err = in.verify(ctx, outside, img); err != nil {
		if !a.Target.Force || ctx.Err() != nil {
			return &stepError{"The update cannot be verified", err}
		}
		a.Verified = verify.ForceUnsafe(img, err)
	}
	return nil
}

// verify asks who signed an image, by the keys that the running release brings unless an administrator named others.
// A process that has just started runs its own release.
func (in acceptInput) verify(ctx context.Context, outside Outside, img release.Image) ([]release.Evidence, error) {
	running := in.runningPayload()
	if running == nil && in.Local != nil {
		var err error
		if running, _, err = in.load(in.Local, in.own); err != nil {
			return nil, err
		}
	}
	verifier, err := outside.Verifier(ctx, img, running)
	if err != nil {
		return nil, err
	}
	return verifier.Verify(ctx, img)
}

func (in acceptInput) runningPayload() *payload.Payload {
	if in.running == nil {
		return nil
	}
	return in.running.Payload
}

// load reads a release, and finds what of it this cluster gets. Overrides are left to the rollout, so that an
// administrator can have an object left alone without anything being read again.
func (in acceptInput) load(files fs.FS, image string) (*payload.Payload, manifest.Filter, error) {
	version := "" // if it cannot be read, loading tells
	if metadata, err := payload.ReadMetadata(files); err == nil {
		version = metadata.Version
	}
	var stay []configv1.ClusterVersionCapability
	if in.running != nil {
		stay = in.running.filter.Capabilities.Enabled.UnsortedList()
	}
	read := func() (*payload.Payload, manifest.Filter, error) {
		filter := in.settings.Filter(in.cv, version, stay...)
		filter.Overrides = nil
		p, err := payload.Load(files, image, payload.Options{
			Filter: filter, Running: in.runningPayload(), BringYourOwnNetwork: in.settings.BringYourOwnNetwork,
		})
		return p, filter, err
	}
	p, filter, err := read()
	if err != nil || in.running == nil {
		return p, filter, err
	}
	implicit := manifest.ImplicitCapabilities(filter.Capabilities, in.running.Payload.Manifests, p.Optional(filter))
	if len(implicit) == 0 {
		return p, filter, nil
	}
	stay = append(stay, implicit...)
	return read()
}

// load reads the payload.
func load(ctx context.Context, in acceptInput, a *Acceptance) error {
	var err error
	if a.Payload, a.filter, err = in.load(a.files, a.Image()); err != nil || in.Successor == nil || a.Target.Own {
		return err
	}
	return in.Successor(ctx, in.cv, a.Verified.Image, a.Payload)
}

func checkVersion(_ context.Context, _ acceptInput, a *Acceptance) error {
	if got := a.Payload.Release.Version; a.Target.Version != "" && a.Target.Version != got {
		return fmt.Errorf("release image version %s does not match the expected upstream version %s", got, a.Target.Version)
	}
	a.Target.Version = a.Payload.Release.Version
	return nil
}

// weigh asks the preconditions, which are about beginning an update. The operator's own release has none: it is what
// runs. Neither has the way back, nor what was begun already, which an operator takes up again after a restart.
func weigh(ctx context.Context, in acceptInput, a *Acceptance) error {
	if in.begun(a) {
		return nil
	}
	objections := precondition.Run(precondition.All(), in.preconditions(ctx, a))
	blocking := precondition.Error(precondition.Blocking(objections))
	if blocking != nil && !a.Target.Force {
		return blocking
	}
	if all := precondition.Error(objections); all != nil {
		text := all.Error()
		if blocking != nil {
			text = "Forced through blocking failures: " + text
		}
		a.Warned, a.Risks = text, joinRisks(a.Risks, text)
	}
	return nil
}

// begun reports whether a target is nothing new: the operator's own release, the way back, or what was begun already.
func (in acceptInput) begun(a *Acceptance) bool {
	history := in.cv.Status.History
	return a.Target.Own || a.Target.Return || len(history) > 0 && history[0].Image == a.Image()
}

// permit sees to it that the operator may do what applying the release takes. What was begun already is not held up: then
// the rollout tells which objects it may not apply, and goes on with the others.
func permit(ctx context.Context, in acceptInput, a *Acceptance) error {
	if in.Permit == nil {
		return nil
	}
	err := in.Permit(ctx, in.runningPayload(), a.Payload)
	missing, refused := errors.AsType[*permission.Error](err)
	switch {
	case err == nil, in.begun(a):
		return nil
	case refused && a.Target.Force:
		a.Warned = joinRisks(a.Warned, missing.Error())
		a.Risks = joinRisks(a.Risks, "Forced through missing permissions: "+missing.Error())
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

// stepError is an error in the words that OpenShift's operator has for it, which start a sentence.
type stepError struct {
	text string
	err  error
}

func (e *stepError) Error() string { return e.text + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// transient reports whether trying again may help without anybody changing the ClusterVersion: everything but a
// payload that is broken or of another version, unless it was asked for by a tag, which may lead elsewhere by then.
func transient(a Acceptance) bool {
	var broken *payload.Error
	fixed := a.Step == api.ReasonVerifyPayloadVersion || errors.As(a.Err, &broken)
	return a.Err != nil && (!fixed || a.byTag())
}

func (a Acceptance) byTag() bool { return a.Verified.Digest != "" && a.Target.Image != a.Image() }
