package accept_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// shelf is an in-memory registry and signature store.
type shelf struct {
	images     map[string]fs.FS          // by digest
	tags       map[string]release.Digest // by pullspec
	signed     map[release.Digest]bool
	resolveErr error
	pullErr    error
	pulled     []release.Digest
	trusted    []*payload.Payload // the running payloads passed to Verifier
}

func newShelf(versions ...string) *shelf {
	s := &shelf{images: map[string]fs.FS{}, tags: map[string]release.Digest{}, signed: map[release.Digest]bool{}}
	for _, v := range versions {
		s.images[string(digestOf(v))] = files(v)
		s.signed[digestOf(v)] = true
	}
	return s
}

func (s *shelf) Resolve(_ context.Context, pullspec string) (release.Image, error) {
	if s.resolveErr != nil {
		return release.Image{}, s.resolveErr
	}
	if d, ok := s.tags[pullspec]; ok {
		return release.Image{Pullspec: pullspec, Digest: d}, nil
	}
	return release.Image{Pullspec: pullspec, Digest: release.Digest(pullspec[len("example.com/r@"):])}, nil
}

func (s *shelf) Manifests(_ context.Context, img release.Image) (fs.FS, error) {
	if s.pullErr != nil {
		return nil, s.pullErr
	}
	s.pulled = append(s.pulled, img.Digest)
	return s.images[string(img.Digest)], nil
}

func (s *shelf) Verifier(_ context.Context, _ release.Image, running *payload.Payload) (accept.Verifier, error) {
	s.trusted = append(s.trusted, running)
	return s, nil
}

var errUnsigned = errors.New("no signature found")

func (s *shelf) Verify(_ context.Context, img release.Image) ([]release.Evidence, error) {
	if !s.signed[img.Digest] {
		return nil, errUnsigned
	}
	return []release.Evidence{{Method: "openpgp", KeyID: "0123", Identity: "Jo", Store: "shelf"}}, nil
}

func (s *shelf) stages() accept.Stages {
	return accept.Stages{
		Outside:  func(context.Context, *configv1.ClusterVersion) (accept.Outside, error) { return s, nil },
		Settings: func() accept.Settings { return accept.Settings{} },
	}
}

// try accepts a target on a cluster and returns the result and all events.
func try(t *testing.T, in accept.Input, target request.Target) (accept.Acceptance, []event.Event) {
	t.Helper()
	if in.ClusterVersion == nil {
		in.ClusterVersion = clusterAt(completed("1.0.0"))
	}
	in.Own = imageOf("1.0.0")
	in.ClusterVersion.Status.AvailableUpdates = []configv1.Release{{Version: "1.1.0"}} // prevents a warning of a precondition
	var before accept.Acceptance
	var emitted []event.Event
	report := func(a accept.Acceptance) {
		emitted = append(emitted, accept.Events(before, a)...)
		before = a
	}
	a := accept.Run(t.Context(), in, target, report)
	report(a)
	report(a) // the second report must emit no event
	return a, emitted
}

func TestAcceptLoadsAVerifiedRelease(t *testing.T) {
	s := newShelf("1.1.0")
	a, emitted := try(t, accept.Input{Stages: s.stages()}, request.Target{Image: imageOf("1.1.0")})
	require.NoError(t, a.Err)
	assert.True(t, a.Done)
	assert.Equal(t, "PayloadLoaded", a.Step)
	assert.Equal(t, `Payload loaded version="1.1.0" image="`+imageOf("1.1.0")+`" architecture=""`, a.Message)
	assert.Equal(t, "1.1.0", a.Target.Version, "the version comes from the payload")
	assert.Empty(t, a.Risks)
	assert.Equal(t, imageOf("1.1.0"), a.Image())
	image := `image="` + imageOf("1.1.0") + `"`
	assert.Equal(t, []event.Event{
		{Kind: "Normal", Reason: "RetrievePayload", Message: `Retrieving and verifying payload version="" ` + image},
		{Kind: "Normal", Reason: "LoadPayload", Message: `Loading payload version="" ` + image},
		{Kind: "Normal", Reason: "PreconditionsPassed", Message: `Preconditions passed for payload loaded version="1.1.0" ` + image},
		{Kind: "Normal", Reason: "PayloadLoaded", Message: `Payload loaded version="1.1.0" ` + image + ` architecture="" signed by openpgp key 0123 (Jo) found in shelf`},
	}, emitted)
}

//threat:no-signature-none rejects an image without a signature
//threat:older-release-properly rejects an older release
//threat:another-version-requested rejects a version other than the requested one
//threat:payload-does-parse rejects a tampered payload
func TestAcceptRejectsBadReleases(t *testing.T) {
	image := func(v string) string { return `image="` + imageOf(v) + `"` }
	for _, tt := range []struct {
		name      string
		cv        *configv1.ClusterVersion
		edit      func(s *shelf)
		target    request.Target
		step      string
		message   string
		event     string
		permanent bool
		// pulls reports that the image is read before it is rejected.
		pulls bool
	}{
		{
			name: "rejects an image that cannot be found", edit: func(s *shelf) { s.resolveErr = errors.New("not found") },
			target: request.Target{Image: imageOf("1.1.0"), Version: "1.1.0"}, step: "RetrievePayload",
			message: `Retrieving payload failed version="1.1.0" ` + image("1.1.0") + ` failure=Unable to download and prepare the update: not found`,
			event:   "RetrievePayloadFailed",
		},
		{
			name: "rejects an image without a signature", edit: func(s *shelf) { clear(s.signed) },
			target: request.Target{Image: imageOf("1.1.0")}, step: "RetrievePayload",
			message: `Retrieving payload failed version="" ` + image("1.1.0") + ` failure=The update cannot be verified: no signature found`,
			event:   "RetrievePayloadFailed",
		},
		{
			name: "rejects an image that cannot be pulled", edit: func(s *shelf) { s.pullErr = errors.New("broken layer") },
			target: request.Target{Image: imageOf("1.1.0")}, step: "RetrievePayload",
			message: `Retrieving payload failed version="" ` + image("1.1.0") + ` failure=Unable to download and prepare the update: broken layer`,
			event:   "RetrievePayloadFailed",
		},
		{
			name: "rejects a tampered payload", edit: func(s *shelf) {
				s.images[string(digestOf("1.1.0"))] = files("1.1.0", "release-manifests/0000_20_b_01.yaml", "kind: [")
			},
			target: request.Target{Image: imageOf("1.1.0")}, step: "LoadPayload", permanent: true, pulls: true,
			message: `Loading payload failed version="" ` + image("1.1.0") + ` failure=loading payload ` + imageOf("1.1.0") + `: 0000_20_b_01.yaml[1]: `,
			event:   "LoadPayloadFailed",
		},
		{
			name: "rejects a version other than the requested one", target: request.Target{Image: imageOf("1.1.0"), Version: "1.1.1"}, step: "VerifyPayloadVersion", permanent: true, pulls: true,
			message: `Verifying payload failed version="1.1.1" ` + image("1.1.0") + ` failure=release image version 1.1.0 does not match the expected upstream version 1.1.1`,
			event:   "VerifyPayloadVersionFailed",
		},
		{
			name: "rejects an older release", cv: clusterAt(completed("1.2.0")), target: request.Target{Image: imageOf("1.1.0")}, step: "PreconditionChecks", pulls: true,
			message: `Preconditions failed for payload loaded version="1.1.0" ` + image("1.1.0") + `: Precondition "ClusterVersionRollback" failed because of "LowDesiredVersion": 1.1.0 is less than the current target 1.2.0, and the cluster has no previous Semantic Version`,
			event:   "PreconditionBlock",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShelf("1.1.0")
			if tt.edit != nil {
				tt.edit(s)
			}
			a, emitted := try(t, accept.Input{Stages: s.stages(), ClusterVersion: tt.cv}, tt.target)
			require.Error(t, a.Err)
			assert.False(t, a.Done)
			assert.Equal(t, tt.step, a.Step)
			assert.Contains(t, a.Message, tt.message)
			assert.Equal(t, tt.permanent, !accept.IsTransient(a))
			assert.Equal(t, tt.pulls, len(s.pulled) > 0)
			last := emitted[len(emitted)-1]
			assert.Equal(t, event.Event{Kind: "Warning", Reason: tt.event, Message: a.Message}, last)
			failures := 0
			for _, e := range emitted {
				if e.Kind == "Warning" {
					failures++
				}
			}
			assert.Equal(t, 1, failures)
		})
	}
}

//threat:force
func TestForceSkipsVerificationAndPreconditions(t *testing.T) {
	s := newShelf("1.1.0")
	clear(s.signed)
	image := `image="` + imageOf("1.1.0") + `"`
	const unsigned = " cannot be verified, but continuing anyway because the update was forced: no signature found"
	t.Run("accepts a release without a signature", func(t *testing.T) {
		a, emitted := try(t, accept.Input{Stages: s.stages()}, request.Target{Image: imageOf("1.1.0"), Force: true})
		require.NoError(t, a.Err)
		assert.True(t, a.Done)
		assert.Equal(t, `Target release version="" `+image+unsigned, a.Risks)
		assert.Empty(t, a.Verified.Evidence)
		require.ErrorIs(t, a.Verified.Forced, errUnsigned)
		assert.Contains(t, emitted, event.Event{Kind: "Warning", Reason: "RetrievePayload", Message: a.Risks})
		assert.Contains(t, emitted, event.Event{Kind: "Normal", Reason: "PreconditionsPassed", Message: `Preconditions passed for payload loaded version="1.1.0" ` + image})
	})
	t.Run("skips preconditions", func(t *testing.T) {
		a, emitted := try(t, accept.Input{Stages: s.stages(), ClusterVersion: clusterAt(completed("1.2.0"))}, request.Target{Image: imageOf("1.1.0"), Version: "1.1.0", Force: true})
		require.NoError(t, a.Err)
		const objection = `Forced through blocking failures: Precondition "ClusterVersionRollback" failed because of "LowDesiredVersion": 1.1.0 is less than the current target 1.2.0, and the cluster has no previous Semantic Version`
		assert.Equal(t, `Target release version="1.1.0" `+image+unsigned+"\n"+objection, a.Risks)
		assert.Equal(t, objection, a.Warned)
		assert.Contains(t, emitted, event.Event{Kind: "Warning", Reason: "PreconditionWarn", Message: `Precondition warning for payload loaded version="1.1.0" ` + image + ": " + objection})
		for _, e := range emitted {
			assert.NotEqual(t, "PreconditionsPassed", e.Reason)
		}
	})
	t.Run("does not skip a broken payload", func(t *testing.T) {
		s := newShelf()
		s.images[string(digestOf("1.1.0"))] = files("1.1.0", "release-manifests/0000_20_b_01.yaml", "kind: [")
		a, _ := try(t, accept.Input{Stages: s.stages()}, request.Target{Image: imageOf("1.1.0"), Force: true})
		assert.Equal(t, "LoadPayload", a.Step)
		require.Error(t, a.Err)
	})
	t.Run("does not override a canceled signature lookup", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		a := accept.Run(ctx, accept.Input{Stages: s.stages(), ClusterVersion: clusterAt(completed("1.0.0"))}, request.Target{Image: imageOf("1.1.0"), Force: true}, func(accept.Acceptance) {})
		require.Error(t, a.Err)
		require.NoError(t, a.Verified.Forced)
	})
}

func TestAcceptRecordsWarnings(t *testing.T) {
	cv := clusterAt(completed("1.0.0"))
	cv.Status.Desired.Version = "banana"
	a, emitted := try(t, accept.Input{Stages: newShelf("1.1.0").stages(), ClusterVersion: cv}, request.Target{Image: imageOf("1.1.0")})
	require.NoError(t, a.Err)
	assert.Contains(t, a.Risks, `Precondition "ClusterVersionRollback" failed because of "InvalidCurrentVersion"`)
	assert.NotContains(t, a.Risks, "Forced")
	assert.Equal(t, "PreconditionWarn", emitted[len(emitted)-2].Reason)
}

//threat:operator-own-older applies preconditions after another release has completed
func TestOwnReleaseNeedsNoSignature(t *testing.T) {
	t.Run("reads the release from its files", func(t *testing.T) {
		s := newShelf()
		stages := s.stages()
		stages.Local = files("1.0.0")
		a, emitted := try(t, accept.Input{Stages: stages, ClusterVersion: clusterAt()}, request.Target{Image: imageOf("1.0.0"), Own: true})
		require.NoError(t, a.Err)
		assert.Empty(t, s.pulled)
		assert.Empty(t, s.trusted)
		assert.Equal(t, imageOf("1.0.0"), a.Image())
		assert.Equal(t, []string{"RetrievePayload", "LoadPayload", "PayloadLoaded"}, reasonsOf(emitted), "a first install has no preconditions")
	})
	t.Run("applies preconditions after another release has completed", func(t *testing.T) {
		stages := newShelf().stages()
		stages.Local = files("1.0.0")
		a, _ := try(t, accept.Input{Stages: stages, ClusterVersion: clusterAt(completed("1.2.0"))}, request.Target{Image: imageOf("1.0.0"), Own: true})
		require.ErrorContains(t, a.Err, "1.0.0 is less than the current target 1.2.0")
	})
	t.Run("pulls a signed release", func(t *testing.T) {
		s := newShelf("1.0.0")
		s.signed[digestOf("1.0.0")] = false
		a, _ := try(t, accept.Input{Stages: s.stages(), ClusterVersion: clusterAt()}, request.Target{Image: imageOf("1.0.0"), Own: true})
		require.ErrorIs(t, a.Err, errUnsigned)
	})
	t.Run("skips preconditions on a rollback", func(t *testing.T) {
		a, _ := try(t, accept.Input{Stages: newShelf("1.0.0").stages(), ClusterVersion: clusterAt(partial("1.1.0"), completed("1.0.0"))}, request.Target{Image: imageOf("1.0.0"), Return: true})
		require.NoError(t, a.Err)
	})
}

func reasonsOf(events []event.Event) []string {
	var reasons []string
	for _, e := range events {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

//threat:policy-less-authority
func TestAcceptUsesKeysOfTheRunningRelease(t *testing.T) {
	s := newShelf("1.1.0")
	stages := s.stages()
	running := acceptedRelease("1.0.0")
	_, _ = try(t, accept.Input{Stages: stages, Running: &running}, request.Target{Image: imageOf("1.1.0")})
	assert.Same(t, running.Payload, s.trusted[0])
	stages.Local = files("1.0.0")
	a, _ := try(t, accept.Input{Stages: stages}, request.Target{Image: imageOf("1.1.0")})
	require.NoError(t, a.Err)
	require.NotNil(t, s.trusted[1], "a process that has just started uses its own release's keys")
	assert.Equal(t, "1.0.0", s.trusted[1].Release.Version)
	stages.Local = nil
	_, _ = try(t, accept.Input{Stages: stages}, request.Target{Image: imageOf("1.1.0")})
	assert.Nil(t, s.trusted[2])
}

//threat:tag-moved-resolving
func TestAcceptResolvesATag(t *testing.T) {
	s := newShelf("1.1.0")
	s.tags["example.com/r:latest"] = digestOf("1.1.0")
	a, _ := try(t, accept.Input{Stages: s.stages()}, request.Target{Image: "example.com/r:latest"})
	require.NoError(t, a.Err)
	assert.Equal(t, imageOf("1.1.0"), a.Image(), "the status has the digest")
	assert.Equal(t, imageOf("1.1.0"), a.Payload.Release.Image)
	assert.Contains(t, a.Message, `image="example.com/r:latest"`, "messages name the requested pullspec")

	a, _ = try(t, accept.Input{Stages: s.stages()}, request.Target{Image: "example.com/r:latest", Version: "1.2.0"})
	require.Error(t, a.Err)
	assert.True(t, accept.IsTransient(a), "a tag may point to another image later")
}

//threat:overrides
func TestAcceptKeepsOverridesForTheRollout(t *testing.T) {
	override := []configv1.ComponentOverride{{Kind: "ConfigMap", Namespace: "ns", Name: "a", Unmanaged: true}}
	cv := clusterAt(completed("1.0.0"))
	cv.Spec.Overrides = override
	a, _ := try(t, accept.Input{Stages: newShelf("1.1.0").stages(), ClusterVersion: cv}, request.Target{Image: imageOf("1.1.0")})
	require.NoError(t, a.Err)
	assert.Len(t, a.Payload.Manifests, 1)
	assert.Len(t, accept.Managed(a, nil), 1)
	assert.Empty(t, accept.Managed(a, override))
	assert.Len(t, a.Payload.Manifests, 1)
}

// TestRejectedReleaseIsNotLoadedAgain rechecks the preconditions of a rejected release. They need neither another retrieval nor another
// read. The release is verified once more when they pass.
func TestRejectedReleaseIsNotLoadedAgain(t *testing.T) {
	s := newShelf("1.0.0", "1.3.0")
	in := accept.Input{Stages: s.stages(), ClusterVersion: clusterAt(completed("1.0.0"))}
	refused, _ := try(t, in, request.Target{Image: imageOf("1.3.0")})
	require.Error(t, refused.Err)
	require.Equal(t, api.ReasonPreconditionChecks, refused.Step)
	assert.True(t, refused.Loaded())
	s.resolveErr, s.pullErr = errors.New("no registry"), errors.New("no registry")

	still := accept.Again(t.Context(), in, refused, func(accept.Acceptance) {})
	assert.Equal(t, refused.Message, still.Message, "the same obstacle gives the same message")
	in.ClusterVersion = clusterAt(completed("1.2.0"))
	a := accept.Again(t.Context(), in, refused, func(accept.Acceptance) {})
	require.NoError(t, a.Err)
	assert.True(t, a.Done)
	assert.Same(t, refused.Payload, a.Payload)
	assert.Len(t, a.Verified.Evidence, 1)
	assert.Len(t, s.trusted, 2)
	assert.Len(t, s.pulled, 1)
}

// TestRetriesRecordRisksOnce rejects a forced release for missing permissions, until the API server responds.
func TestRetriesRecordRisksOnce(t *testing.T) {
	s := newShelf("1.1.0")
	clear(s.signed)
	in := accept.Input{Stages: s.stages(), ClusterVersion: clusterAt(completed("1.2.0"))}
	fails := true
	in.Permit = func(context.Context, *payload.Payload, *payload.Payload) error {
		if fails {
			return errors.New("the API server is down")
		}
		return nil
	}
	a, _ := try(t, in, request.Target{Image: imageOf("1.1.0"), Version: "1.1.0", Force: true})
	require.Equal(t, api.ReasonPermissions, a.Step)
	first := a
	for range 3 {
		a = accept.Again(t.Context(), in, a, func(accept.Acceptance) {})
		require.Error(t, a.Err)
	}
	fails = false
	a = accept.Again(t.Context(), in, a, func(accept.Acceptance) {})
	require.NoError(t, a.Err)

	assert.Equal(t, first.Risks, a.Risks)
	assert.Equal(t, first.Warned, a.Warned)
	assert.Equal(t, first.ForcedPast, a.ForcedPast)
	assert.Len(t, a.ForcedPast, 2, "the signature and the version")
}

// TestKnownReleaseKeepsItsSignature reads a verified release again with other settings. Its signature stays valid.
func TestKnownReleaseKeepsItsSignature(t *testing.T) {
	s := newShelf("1.1.0")
	in := accept.Input{Stages: s.stages(), Settings: accept.Settings{Gates: map[string]sets.Set[string]{"1.1.0": sets.New("A")}}}
	s.images[string(digestOf("1.1.0"))] = files("1.1.0", "release-manifests/0000_20_b_01.yaml", gated("A", "b"), "release-manifests/0000_20_c_01.yaml", gated("C", "c"))
	first, _ := try(t, in, request.Target{Image: imageOf("1.1.0")})
	require.NoError(t, first.Err)
	assert.Equal(t, []string{"a", "b"}, namesOf(first.Payload.Manifests))
	clear(s.signed)
	s.resolveErr = errors.New("no registry")
	in.Known, in.Running = &first.Verified, &first
	in.Settings = accept.Settings{Gates: map[string]sets.Set[string]{"1.1.0": sets.New("C")}}
	a, emitted := try(t, in, request.Target{Image: imageOf("1.1.0")})
	require.NoError(t, a.Err)
	assert.Equal(t, []string{"a", "c"}, namesOf(a.Payload.Manifests))
	assert.Equal(t, first.Verified, a.Verified)
	assert.Len(t, s.trusted, 1)
	assert.NotContains(t, reasonsOf(emitted), "RetrievePayloadFailed")
	assert.NotEqual(t, first.Payload.Hash, a.Payload.Hash)
}

// TestKnownForcedReleaseStaysForced reads a forced release again. It is still reported as forced.
func TestKnownForcedReleaseStaysForced(t *testing.T) {
	s := newShelf("1.1.0")
	clear(s.signed)
	in := accept.Input{Stages: s.stages()}
	first, _ := try(t, in, request.Target{Image: imageOf("1.1.0"), Force: true})
	require.NoError(t, first.Err)
	in.Known = &first.Verified
	again, _ := try(t, in, request.Target{Image: imageOf("1.1.0"), Force: true})
	require.NoError(t, again.Err)
	assert.Equal(t, first.Risks, again.Risks)
	assert.Equal(t, errUnsigned, again.Verified.Forced)
}

// TestMessageOfABrokenReleaseFitsIntoAStatus rejects releases whose errors quote megabytes.
//
//threat:long-texts
func TestMessageOfABrokenReleaseFitsIntoAStatus(t *testing.T) {
	for _, metadata := range []string{
		`{"kind":"` + strings.Repeat("k", 3<<20) + `","version":"1.0.0"}`,
		`{"kind":"cincinnati-metadata-v0","version":"1.0.0-` + strings.Repeat("v", 3<<20) + `"}`,
	} {
		s := newShelf("1.1.0")
		s.images[string(digestOf("1.1.0"))] = files("1.1.0", "release-manifests/release-metadata", metadata)
		a, _ := try(t, accept.Input{Stages: s.stages()}, request.Target{Image: imageOf("1.1.0")})
		require.Error(t, a.Err)
		assert.Contains(t, a.Message, "release-metadata")
		assert.LessOrEqual(t, len(a.Message), 32<<10)
	}
}

// TestSkippedFilesAreReported accepts a release with a template that this operator cannot render.
//
//threat:template-skipped
func TestSkippedFilesAreReported(t *testing.T) {
	s := newShelf()
	s.images[string(digestOf("1.1.0"))] = files("1.1.0", "manifests/0000_00_a_10.yaml", "{{.New}}")
	s.signed[digestOf("1.1.0")] = true
	a, emitted := try(t, accept.Input{Stages: s.stages()}, request.Target{Image: imageOf("1.1.0")})
	require.NoError(t, a.Err)
	last := emitted[len(emitted)-1]
	assert.Equal(t, []string{"Warning", "FilesSkipped"}, []string{last.Kind, last.Reason})
	assert.Contains(t, last.Message, "This operator cannot read files of release 1.1.0: manifests/0000_00_a_10.yaml: skipped: executing template: ")
}

// TestEmptyReleaseIsAcceptedWithAWarning accepts a release without a manifest for the cluster. The warning names the reason.
func TestEmptyReleaseIsAcceptedWithAWarning(t *testing.T) {
	in := accept.Input{Stages: newShelf("1.1.0").stages(), Settings: accept.Settings{Profile: "edge"}}
	a, emitted := try(t, in, request.Target{Image: imageOf("1.1.0")})
	require.NoError(t, a.Err)
	assert.True(t, a.Done)
	const nothing = "none of the 1 manifests of release 1.1.0 is for this cluster: no annotation include.release.openshift.io/edge (1)"
	assert.Equal(t, `Payload loaded version="1.1.0" image="`+imageOf("1.1.0")+`" architecture=""; warning: `+nothing, a.Message)
	assert.Contains(t, emitted, event.Event{Kind: "Warning", Reason: api.EventNothingIncluded, Message: "The cluster gets no component: " + nothing})

	in.Settings.Profile = ""
	a, emitted = try(t, in, request.Target{Image: imageOf("1.1.0")})
	assert.NotContains(t, a.Message, "warning")
	assert.NotContains(t, reasonsOf(emitted), api.EventNothingIncluded)
}

// endlessShelf is a shelf whose images never arrive.
type endlessShelf struct{ *shelf }

func (endlessShelf) Manifests(ctx context.Context, _ release.Image) (fs.FS, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestRetrievalHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf("1.0.0")
		stages := s.stages()
		stages.Outside = func(context.Context, *configv1.ClusterVersion) (accept.Outside, error) { return endlessShelf{s}, nil }
		start := time.Now()
		a := accept.Run(t.Context(), accept.Input{Stages: stages, ClusterVersion: &configv1.ClusterVersion{}},
			request.Target{Image: imageOf("1.0.0"), Requested: true}, func(accept.Acceptance) {})
		require.ErrorIs(t, a.Err, context.DeadlineExceeded)
		assert.Contains(t, a.Message, "Unable to download and prepare the update: not retrieved within 30m0s")
		assert.Equal(t, 30*time.Minute, time.Since(start))
		assert.True(t, accept.IsTransient(a), "the next attempt uses the cache")
	})
}
