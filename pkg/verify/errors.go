package verify

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

// ErrUnverified is the error for every rejected image. Check it with errors.Is.
var ErrUnverified = errors.New("the release image is not verified")

// MissingRoot is a root of trust for which no valid signature was found.
type MissingRoot struct {
	Name   string `json:"name"`
	Method string `json:"method"`
	// Kind is "keyring", "public key", "certificate identity" or, for an additional policy that no signature satisfies, "invalid policy".
	Kind string `json:"kind"`
	// Threshold is the name of the missed threshold that the root is a member of; otherwise empty.
	Threshold string `json:"threshold,omitempty"`
	// Policy is the additional policy that requires the root, such as a ClusterImagePolicy with its scope; empty if the root of trust
	// requires it.
	Policy string `json:"policy,omitempty"`
	// Invalid is the error in an invalid policy; otherwise empty.
	Invalid string `json:"invalid,omitempty"`
}

// MissedThreshold is a threshold that was not reached.
type MissedThreshold struct {
	Name     string `json:"name"`
	Required int    `json:"required"`
	Found    int    `json:"found"`
	// Policy is the additional policy that requires the threshold; empty if the root of trust requires it.
	Policy string `json:"policy,omitempty"`
}

// Answer is the result of the search in one place, with a remark for every signature and every failed request.
type Answer struct {
	Store   string   `json:"store"`
	Remarks []string `json:"remarks"`
}

// UnverifiedError explains why a digest was rejected: the unsatisfied roots, and the result of the search in each place. Equal results
// always have the same text.
type UnverifiedError struct {
	Digest release.Digest
	// Policy is the name of the applied policy.
	Policy     string
	Missing    []MissingRoot
	Thresholds []MissedThreshold
	Answers    []Answer
	// Absent is the registry's answer if it lacks the image; otherwise nil.
	Absent error
	// Inaccessible is the error of the image's registry if it gave no access to its content and only signatures attached to the image are
	// missing, so that nothing is known about them; otherwise nil.
	Inaccessible error
	// Cause is the caller's reason for ending the search early; nil if the search was complete.
	Cause error
}

// Error begins with the same sentence as the error of OpenShift's verifier, because people and tools search for it.
func (e *UnverifiedError) Error() string {
	var b strings.Builder
	demands := e.unmet("")
	if len(demands) > 0 && e.Policy != "" {
		demands[len(demands)-1] += fmt.Sprintf(" (trust from %s)", e.Policy)
	}
	demands = append(demands, e.additional()...)
	fmt.Fprintf(&b, "unable to verify %s against %s", e.Digest, strings.Join(demands, " and "))
	if e.Absent != nil {
		fmt.Fprintf(&b, "; the image does not exist: %v", e.Absent)
	}
	for _, a := range e.Answers {
		if len(a.Remarks) > 0 {
			fmt.Fprintf(&b, "; %s: %s", a.Store, strings.Join(a.Remarks, ", "))
		}
	}
	if e.Absent == nil && e.IsUnsigned() {
		b.WriteString("; its publisher signs it with 'cvo release sign', see " + api.UserDocs + "signatures.md")
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, "; the search was interrupted: %v", e.Cause)
	}
	return b.String()
}

// noSignature is the remark about a place without a signature.
const noSignature = "no signature found"

// IsUnsigned reports whether every place was searched and none has a signature, valid or not.
func (e *UnverifiedError) IsUnsigned() bool {
	return e.Cause == nil && !slices.ContainsFunc(e.Answers, func(a Answer) bool { return !slices.Equal(a.Remarks, []string{noSignature}) })
}

// unmet returns the missing parts of the root of trust (if the name is empty) or of an additional policy.
func (e *UnverifiedError) unmet(policy string) []string {
	var out []string
	for _, k := range []struct{ kind, plural string }{{kindKeyring, "keyrings"}, {kindPublicKey, "public keys"}, {kindAuthority, "certificate identities"}} {
		names := e.names(func(m MissingRoot) bool { return m.Policy == policy && m.Threshold == "" && m.Kind == k.kind })
		if len(names) > 0 {
			out = append(out, k.plural+": "+strings.Join(names, ", "))
		}
	}
	for _, t := range e.Thresholds {
		if t.Policy != policy {
			continue
		}
		names := e.names(func(m MissingRoot) bool { return m.Policy == policy && m.Threshold == t.Name })
		out = append(out, fmt.Sprintf("threshold %s: %d of %d signers, missing from %s", t.Name, t.Found, t.Required, strings.Join(names, ", ")))
	}
	return out
}

// additional returns the unsatisfied additional policies.
func (e *UnverifiedError) additional() []string {
	var out []string
	for _, m := range e.Missing {
		text := m.Policy
		if m.Invalid != "" {
			text += fmt.Sprintf(" (invalid: %s)", m.Invalid)
		}
		if text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// Unwrap returns ErrUnverified and, if the search was interrupted, the cause.
func (e *UnverifiedError) Unwrap() []error {
	if e.Cause != nil {
		return []error{ErrUnverified, e.Cause}
	}
	return []error{ErrUnverified}
}

func (e *UnverifiedError) names(of func(MissingRoot) bool) []string {
	var out []string
	for _, m := range e.Missing {
		if of(m) {
			out = append(out, m.Name)
		}
	}
	return out
}

func (e *UnverifiedError) sort() {
	sorted.By(e.Missing, func(a, b MissingRoot) int {
		return cmp.Or(cmp.Compare(a.Method, b.Method), cmp.Compare(a.Name, b.Name))
	})
	sorted.By(e.Thresholds, func(a, b MissedThreshold) int { return cmp.Compare(a.Name, b.Name) })
	// The sort is stable: places with the same name stay in the order of the search, and remarks in the order of the signatures.
	sorted.By(e.Answers, func(a, b Answer) int { return cmp.Compare(a.Store, b.Store) })
}

// remark returns the text for an error from a place. The same failure of a place always has the same text.
func remark(err error) string {
	if unread, ok := errors.AsType[*store.SignatureError](err); ok {
		return unread.Name + ": " + failure.StableText(unread.Err)
	}
	return failure.StableText(err)
}
