// Package verifying checks the signatures of a release for a command. It reads trust policies and ClusterImagePolicies from files, rejects
// images without the required signatures, and prints the signers. Package verify implements the rules.
package verifying

import (
	"context"
	"errors"
	"fmt"

	"github.com/cluster-version/cvo/internal/inputfile"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/policy"
)

// Sources returns the sources of signatures without a cluster: the stores of the policy, and the registry of the image.
func Sources(images *image.Reader) verify.Sources {
	return verify.Sources{Client: images.Access().WebClient(), Attachments: images, Exist: images.Exist}
}

// ShippedKeys returns the keys that a release ships for its successors, named with its version. The error is an *UnreadError
// if the release cannot be read.
func ShippedKeys(ctx context.Context, images *image.Reader, img release.Image) (policy.Policy, error) {
	files, err := images.Manifests(ctx, img)
	if err != nil {
		return policy.Policy{}, &UnreadError{err}
	}
	p, err := payload.Load(files, img.ByDigest(), payload.Options{})
	if err != nil {
		return policy.Policy{}, &UnreadError{err}
	}
	shipped, err := policy.FromManifests(p.Manifests)
	if err != nil {
		return policy.Policy{}, err
	}
	shipped.Name = fmt.Sprintf("%s %s", shipped.Name, p.Release.Version)
	return shipped, nil
}

// UnreadError means that the signatures could not be checked, because the release or the trust policy is unreadable.
type UnreadError struct{ Err error }

func (e *UnreadError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnreadError) Unwrap() error { return e.Err }

// signatureVerifier checks the signatures of an image, as verify.Verifier does.
type signatureVerifier interface {
	Verify(ctx context.Context, img release.Image) ([]release.Evidence, error)
}

// Signed rejects an image without the required signatures, and prints the signers of an accepted image.
func Signed(ctx context.Context, streams command.Streams, verifier signatureVerifier, img release.Image) error {
	evidence, err := verifier.Verify(ctx, img)
	if err != nil {
		return Refusal(img, err)
	}
	PrintSigners(streams, img.ByDigest(), evidence)
	return nil
}

// Refusal returns the error of a command whose verification of an image failed: a refusal, except if the image's registry is inaccessible.
func Refusal(img release.Image, err error) error {
	refused, _ := errors.AsType[*verify.UnverifiedError](err)
	switch {
	case IsInaccessible(err):
		return fmt.Errorf("reading the signatures of %s: %w", img.ByDigest(), refused.Inaccessible)
	case errors.Is(err, verify.ErrUnverified):
		return &command.RefusedError{Err: err}
	}
	return err
}

// IsInaccessible reports whether a verification failed only because the image's registry gave no access to the signatures.
func IsInaccessible(err error) bool {
	refused, ok := errors.AsType[*verify.UnverifiedError](err)
	return ok && refused.Inaccessible != nil
}

// PrintSigners prints the signers of an image. A bare key has no other identity.
func PrintSigners(streams command.Streams, what string, evidence []release.Evidence) {
	for _, e := range evidence {
		who := e.KeyID
		if e.Identity != "" {
			who += " " + e.Identity
		}
		streams.Infof("%s is signed by %s key %s, found in %s", what, e.Method, who, e.Store)
	}
}

// ReadTrust reads a trust policy from a file. It returns nil if no file is given.
func ReadTrust(file string) (*policy.Policy, error) {
	if file == "" {
		return nil, nil // nil means that no file is given
	}
	trust, err := policy.Read(file)
	if err != nil {
		return nil, err
	}
	return &trust, nil
}

// ReadImagePolicies reads the ClusterImagePolicies of all files.
func ReadImagePolicies(files []string) (policy.ClusterImagePolicies, error) {
	var policies policy.ClusterImagePolicies
	for _, file := range files {
		data, err := inputfile.Read(file)
		if err != nil {
			return nil, fmt.Errorf("reading --policy: %w", err)
		}
		found, err := policy.ParseClusterImagePolicies(file, data)
		if err != nil {
			return nil, err
		}
		policies = append(policies, found...)
	}
	return policies, policies.Validate()
}

// ImagePolicyNames returns the names of the policies.
func ImagePolicyNames(policies policy.ClusterImagePolicies) []string {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.Name
	}
	return names
}
