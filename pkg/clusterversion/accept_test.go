package clusterversion

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// shelf is a registry and a store of signatures in memory.
type shelf struct {
	images     map[string]fs.FS          // by digest
	tags       map[string]release.Digest // by pullspec
	signed     map[release.Digest]bool
	resolveErr error
	pullErr    error
	pulled     []release.Digest
	trusted    []*payload.Payload // for whom a verifier was asked
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

func (s *shelf) Verifier(_ context.Context, _ release.Image, running *payload.Payload) (Verifier, error) {
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

func (s *shelf) stages() Stages {
	return Stages{
		Outside:  func(context.Context, *configv1.ClusterVersion) (Outside, error) { return s, nil },
		Settings: func() Settings { return Settings{} },
	}
}

// try accepts a target on a cluster and returns the outcome with all events on the way.
func try(t *testing.T, in acceptInput, target Target) (Acceptance, []event) {
	t.Helper()
	if in.cv == nil {
		in.cv = clusterAt(completed("1.0.0"))
	}
	in.own = imageOf("1.0.0")
	in.cv.Status.AvailableUpdates = []configv1.Release{{Version: "1.1.0"}} // so that nothing is to be said of that
	var before Acceptance
	var told []event
	report := func(a Acceptance) {
		told = append(told, acceptanceEvents(before, a)...)
		before = a
	}
	a := accept(t.Context(), in, target, report)
	report(a)
	report(a) // what was told is not told again
	return a, told
}

func TestAccept(t *testing.T) {
	s := newShelf("1.1.0")
	a, told := try(t, acceptInput{Stages: s.stages()}, Target{Image: imageOf("1.1.0")})
	require.NoError(t, a.Err)
	assert.True(t, a.Done)
	assert.Equal(t, "PayloadLoaded", a.Step)
	assert.Equal(t, `Payload loaded version="1.1.0" image="`+imageOf("1.1.0")+`" architecture=""`, a.Message)
	assert.Equal(t, "1.1.0", a.Target.Version, "the payload says its version")
	assert.Empty(t, a.Risks)
	assert.Equal(t, imageOf("1.1.0"), a.Image())
	image := `image="` + imageOf("1.1.0") + `"`
	assert.Equal(t, []event{
		{"Normal", "RetrievePayload", `Retrieving and verifying payload version="" ` + image},
		{"Normal", "LoadPayload", `Loading payload version="" ` + image},
		{"Normal", "PreconditionsPassed", `Preconditions passed for payload loaded version="1.1.0" ` + image},
		{"Normal", "PayloadLoaded", `Payload loaded version="1.1.0" ` + image + ` architecture="" signed by openpgp key 0123 (Jo) found in shelf`},
	}, told)
}

func TestAcceptRefuses(t *testing.T) {
	image := func(v string) string { return `image="` + imageOf(v) + `"` }
	for _, tt := range []struct {
		name      string
		cv        *configv1.ClusterVersion
		edit      func(s *shelf)
		target    Target
		step      string
		message   string
		event     string
		permanent bool
		// pulls says that the image's content is looked at before it is refused.
		pulls bool
	}{
		{
			name: "an image that cannot be found", edit: func(s *shelf) { s.resolveErr = errors.New("not found") },
			target: Target{Image: imageOf("1.1.0"), Version: "1.1.0"}, step: "RetrievePayload",
			message: `Retrieving payload failed version="1.1.0" ` + image("1.1.0") + ` failure=Unable to download and prepare the update: not found`,
			event:   "RetrievePayloadFailed",
		},
		{
			name: "an image that nobody signed", edit: func(s *shelf) { clear(s.signed) },
			target: Target{Image: imageOf("1.1.0")}, step: "RetrievePayload",
			message: `Retrieving payload failed version="" ` + image("1.1.0") + ` failure=The update cannot be verified: no signature found`,
			event:   "RetrievePayloadFailed",
		},
		{
			name: "an image that cannot be pulled", edit: func(s *shelf) { s.pullErr = errors.New("broken layer") },
			target: Target{Image: imageOf("1.1.0")}, step: "RetrievePayload",
			message: `Retrieving payload failed version="" ` + image("1.1.0") + ` failure=Unable to download and prepare the update: broken layer`,
			event:   "RetrievePayloadFailed",
		},
		{
			name: "a payload that is tampered with", edit: func(s *shelf) {
				s.images[string(digestOf("1.1.0"))] = files("1.1.0", "release-manifests/0000_20_b_01.yaml", "kind: [")
			},
			target: Target{Image: imageOf("1.1.0")}, step: "LoadPayload", permanent: true, pulls: true,
			message: `Loading payload failed version="" ` + image("1.1.0") + ` failure=loading payload ` + imageOf("1.1.0") + `: 0000_20_b_01.yaml[1]: `,
			event:   "LoadPayloadFailed",
		},
		{
			name: "another version than it was told", target: Target{Image: imageOf("1.1.0"), Version: "1.1.1"}, step: "VerifyPayloadVersion", permanent: true, pulls: true,
			message: `Verifying payload failed version="1.1.1" ` + image("1.1.0") + ` failure=release image version 1.1.0 does not match the expected upstream version 1.1.1`,
			event:   "VerifyPayloadVersionFailed",
		},
		{
			name: "an older release", cv: clusterAt(completed("1.2.0")), target: Target{Image: imageOf("1.1.0")}, step: "PreconditionChecks", pulls: true,
			message: `Preconditions failed for payload loaded version="1.1.0" ` + image("1.1.0") + `: Precondition "ClusterVersionRollback" failed because of "LowDesiredVersion": 1.1.0 is less than the current target 1.2.0, and the cluster has no previous Semantic Version`,
			event:   "PreconditionBlock",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShelf("1.1.0")
			if tt.edit != nil {
				tt.edit(s)
			}
			a, told := try(t, acceptInput{Stages: s.stages(), cv: tt.cv}, tt.target)
			require.Error(t, a.Err)
			assert.False(t, a.Done)
			assert.Equal(t, tt.step, a.Step)
			assert.Contains(t, a.Message, tt.message)
			assert.Equal(t, tt.permanent, !transient(a))
			assert.Equal(t, tt.pulls, len(s.pulled) > 0)
			last := told[len(told)-1]
			assert.Equal(t, event{"Warning", tt.event, a.Message}, last)
			failures := 0
			for _, e := range told {
				if e.kind == "Warning" {
					failures++
				}
			}
			assert.Equal(t, 1, failures)
		})
	}
}

func TestAcceptForced(t *testing.T) {
	s := newShelf("1.1.0")
	clear(s.signed)
	image := `image="` + imageOf("1.1.0") + `"`
	const unsigned = " cannot be verified, but continuing anyway because the update was forced: no signature found"
	t.Run("past the missing signature", func(t *testing.T) {
		a, told := try(t, acceptInput{Stages: s.stages()}, Target{Image: imageOf("1.1.0"), Force: true})
		require.NoError(t, a.Err)
		assert.True(t, a.Done)
		assert.Equal(t, `Target release version="" `+image+unsigned, a.Risks)
		assert.Empty(t, a.Verified.Evidence)
		require.ErrorIs(t, a.Verified.Forced, errUnsigned)
		assert.Contains(t, told, event{"Warning", "RetrievePayload", a.Risks})
		assert.Contains(t, told, event{"Normal", "PreconditionsPassed", `Preconditions passed for payload loaded version="1.1.0" ` + image})
	})
	t.Run("past preconditions too", func(t *testing.T) {
		a, told := try(t, acceptInput{Stages: s.stages(), cv: clusterAt(completed("1.2.0"))}, Target{Image: imageOf("1.1.0"), Version: "1.1.0", Force: true})
		require.NoError(t, a.Err)
		const objection = `Forced through blocking failures: Precondition "ClusterVersionRollback" failed because of "LowDesiredVersion": 1.1.0 is less than the current target 1.2.0, and the cluster has no previous Semantic Version`
		assert.Equal(t, `Target release version="1.1.0" `+image+unsigned+"\n"+objection, a.Risks)
		assert.Equal(t, objection, a.Warned)
		assert.Contains(t, told, event{"Warning", "PreconditionWarn", `Precondition warning for payload loaded version="1.1.0" ` + image + ": " + objection})
		for _, e := range told {
			assert.NotEqual(t, "PreconditionsPassed", e.reason)
		}
	})
	t.Run("but not past a broken payload", func(t *testing.T) {
		s := newShelf()
		s.images[string(digestOf("1.1.0"))] = files("1.1.0", "release-manifests/0000_20_b_01.yaml", "kind: [")
		a, _ := try(t, acceptInput{Stages: s.stages()}, Target{Image: imageOf("1.1.0"), Force: true})
		assert.Equal(t, "LoadPayload", a.Step)
		require.Error(t, a.Err)
	})
	t.Run("and not because the search was cut short", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		a := accept(ctx, acceptInput{Stages: s.stages(), cv: clusterAt(completed("1.0.0"))}, Target{Image: imageOf("1.1.0"), Force: true}, func(Acceptance) {})
		require.Error(t, a.Err)
		require.NoError(t, a.Verified.Forced)
	})
}

func TestAcceptWarns(t *testing.T) {
	cv := clusterAt(completed("1.0.0"))
	cv.Status.Desired.Version = "banana"
	a, told := try(t, acceptInput{Stages: newShelf("1.1.0").stages(), cv: cv}, Target{Image: imageOf("1.1.0")})
	require.NoError(t, a.Err)
	assert.Contains(t, a.Risks, `Precondition "ClusterVersionRollback" failed because of "InvalidCurrentVersion"`)
	assert.NotContains(t, a.Risks, "Forced")
	assert.Equal(t, "PreconditionWarn", told[len(told)-2].reason)
}

func TestAcceptOwnRelease(t *testing.T) {
	t.Run("from its files", func(t *testing.T) {
		s := newShelf()
		stages := s.stages()
		stages.Local = files("1.0.0")
		a, told := try(t, acceptInput{Stages: stages, cv: clusterAt(completed("1.2.0"))}, Target{Image: imageOf("1.0.0"), Own: true})
		require.NoError(t, a.Err)
		assert.Empty(t, s.pulled)
		assert.Empty(t, s.trusted)
		assert.Equal(t, imageOf("1.0.0"), a.Image())
		assert.Equal(t, []string{"RetrievePayload", "LoadPayload", "PayloadLoaded"}, reasonsOf(told), "what runs has no preconditions")
	})
	t.Run("pulled, and then signed", func(t *testing.T) {
		s := newShelf("1.0.0")
		s.signed[digestOf("1.0.0")] = false
		a, _ := try(t, acceptInput{Stages: s.stages(), cv: clusterAt()}, Target{Image: imageOf("1.0.0"), Own: true})
		require.ErrorIs(t, a.Err, errUnsigned)
	})
	t.Run("as the way back", func(t *testing.T) {
		a, _ := try(t, acceptInput{Stages: newShelf("1.0.0").stages(), cv: clusterAt(partial("1.1.0"), completed("1.0.0"))}, Target{Image: imageOf("1.0.0"), Return: true})
		require.NoError(t, a.Err)
	})
}

func reasonsOf(events []event) []string {
	var reasons []string
	for _, e := range events {
		reasons = append(reasons, e.reason)
	}
	return reasons
}

func TestAcceptByKeysOfTheRunningRelease(t *testing.T) {
	s := newShelf("1.1.0")
	stages := s.stages()
	running := acceptedRelease("1.0.0")
	_, _ = try(t, acceptInput{Stages: stages, running: &running}, Target{Image: imageOf("1.1.0")})
	assert.Same(t, running.Payload, s.trusted[0])
	stages.Local = files("1.0.0")
	a, _ := try(t, acceptInput{Stages: stages}, Target{Image: imageOf("1.1.0")})
	require.NoError(t, a.Err)
	require.NotNil(t, s.trusted[1], "a process that has just started runs its own release")
	assert.Equal(t, "1.0.0", s.trusted[1].Release.Version)
	stages.Local = nil
	_, _ = try(t, acceptInput{Stages: stages}, Target{Image: imageOf("1.1.0")})
	assert.Nil(t, s.trusted[2])
}

func TestAcceptTag(t *testing.T) {
	s := newShelf("1.1.0")
	s.tags["example.com/r:latest"] = digestOf("1.1.0")
	a, _ := try(t, acceptInput{Stages: s.stages()}, Target{Image: "example.com/r:latest"})
	require.NoError(t, a.Err)
	assert.Equal(t, imageOf("1.1.0"), a.Image(), "status names the content")
	assert.Equal(t, imageOf("1.1.0"), a.Payload.Release.Image)
	assert.Contains(t, a.Message, `image="example.com/r:latest"`, "messages name what was asked for")

	a, _ = try(t, acceptInput{Stages: s.stages()}, Target{Image: "example.com/r:latest", Version: "1.2.0"})
	require.Error(t, a.Err)
	assert.True(t, transient(a), "a tag may lead elsewhere later")
}

func TestAcceptKeepsOverridesForTheRollout(t *testing.T) {
	override := []configv1.ComponentOverride{{Kind: "ConfigMap", Namespace: "ns", Name: "a", Unmanaged: true}}
	cv := clusterAt(completed("1.0.0"))
	cv.Spec.Overrides = override
	a, _ := try(t, acceptInput{Stages: newShelf("1.1.0").stages(), cv: cv}, Target{Image: imageOf("1.1.0")})
	require.NoError(t, a.Err)
	assert.Len(t, a.Payload.Manifests, 1)
	assert.Len(t, managed(a, nil), 1)
	assert.Empty(t, managed(a, override))
	assert.Len(t, a.Payload.Manifests, 1)
}

// TestWeighAgain: what preconditions refused is not fetched, verified or read again when they are asked again.
func TestWeighAgain(t *testing.T) {
	s := newShelf("1.0.0", "1.3.0")
	in := acceptInput{Stages: s.stages(), cv: clusterAt(completed("1.0.0"))}
	refused, _ := try(t, in, Target{Image: imageOf("1.3.0")})
	require.Error(t, refused.Err)
	require.Equal(t, api.ReasonPreconditionChecks, refused.Step)
	assert.True(t, refused.loaded())
	s.resolveErr, s.pullErr = errors.New("no registry"), errors.New("no registry")
	clear(s.signed)

	still := weighAgain(t.Context(), in, refused, func(Acceptance) {})
	assert.Equal(t, refused.Message, still.Message, "the same obstacle reads the same")
	in.cv = clusterAt(completed("1.2.0"))
	a := weighAgain(t.Context(), in, refused, func(Acceptance) {})
	require.NoError(t, a.Err)
	assert.True(t, a.Done)
	assert.Same(t, refused.Payload, a.Payload)
	assert.Len(t, a.Verified.Evidence, 1)
	assert.Len(t, s.trusted, 1)
	assert.Len(t, s.pulled, 1)
}

// TestAcceptKnown: a release that was verified is read again with other settings, and its signature counts on.
func TestAcceptKnown(t *testing.T) {
	s := newShelf("1.1.0")
	in := acceptInput{Stages: s.stages(), settings: Settings{Gates: map[string]sets.Set[string]{"1.1.0": sets.New("A")}}}
	s.images[string(digestOf("1.1.0"))] = files("1.1.0", "release-manifests/0000_20_b_01.yaml", gated("A", "b"), "release-manifests/0000_20_c_01.yaml", gated("C", "c"))
	first, _ := try(t, in, Target{Image: imageOf("1.1.0")})
	require.NoError(t, first.Err)
	assert.Equal(t, []string{"a", "b"}, namesOf(first.Payload.Manifests))
	clear(s.signed)
	s.resolveErr = errors.New("no registry")
	in.known, in.running = &first, &first
	in.settings = Settings{Gates: map[string]sets.Set[string]{"1.1.0": sets.New("C")}}
	a, told := try(t, in, Target{Image: imageOf("1.1.0")})
	require.NoError(t, a.Err)
	assert.Equal(t, []string{"a", "c"}, namesOf(a.Payload.Manifests))
	assert.Equal(t, first.Verified, a.Verified)
	assert.Len(t, s.trusted, 1)
	assert.NotContains(t, reasonsOf(told), "RetrievePayloadFailed")
	assert.NotEqual(t, first.Payload.Hash, a.Payload.Hash)
}

// TestAcceptKnownForced: what was forced past verification stays told.
func TestAcceptKnownForced(t *testing.T) {
	s := newShelf("1.1.0")
	clear(s.signed)
	in := acceptInput{Stages: s.stages()}
	first, _ := try(t, in, Target{Image: imageOf("1.1.0"), Force: true})
	require.NoError(t, first.Err)
	in.known = &first
	again, _ := try(t, in, Target{Image: imageOf("1.1.0"), Force: true})
	require.NoError(t, again.Err)
	assert.Equal(t, first.Risks, again.Risks)
	assert.Equal(t, errUnsigned, again.Verified.Forced)
}
