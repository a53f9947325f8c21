package verify

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// ErrNoPolicy means that nobody is trusted, so that nothing can be accepted.
var ErrNoPolicy = errors.New("nothing is accepted because no root of trust is configured: name a trust policy with --trust FILE, " +
	"or ship a ConfigMap with the annotation release.openshift.io/verification-config-map in the release")

// ErrUnverified is what every refusal of an image is, in the sense of errors.Is.
var ErrUnverified = errors.New("the release image is not verified")

// MissingRoot is a root of trust for which no valid signature was found.
type MissingRoot struct {
	Name   string `json:"name"`
	Method string `json:"method"`
	// Kind is "keyring", "public key" or "certificate identity".
	Kind string `json:"kind"`
	// Threshold is set if the root is one of several of which not enough have signed.
	Threshold string `json:"threshold,omitempty"`
}

// MissedThreshold is a number of signers that was not reached.
type MissedThreshold struct {
	Name     string `json:"name"`
	Required int    `json:"required"`
	Found    int    `json:"found"`
}

// Answer is what one place said when it was searched: a remark for every signature and every failed request.
type Answer struct {
	Store   string   `json:"store"`
	Remarks []string `json:"remarks"`
}

// UnverifiedError says why a digest is not accepted: which roots are not satisfied, and what was found where. Its
// text is the same whenever the same places answer the same.
type UnverifiedError struct {
	Digest release.Digest
	// Policy is the name of the policy that was applied.
	Policy     string
	Missing    []MissingRoot
	Thresholds []MissedThreshold
	Answers    []Answer
	// Cause is set if the search was cut short by its caller.
	Cause error
}

// Error starts as OpenShift's verifier does, because people and tools search for that sentence.
func (e *UnverifiedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "unable to verify %s against ", e.Digest)
	var kinds []string
	for _, k := range []struct{ kind, plural string }{{kindKeyring, "keyrings"}, {kindPublicKey, "public keys"}, {kindAuthority, "certificate identities"}} {
		if names := e.names(func(m MissingRoot) bool { return m.Threshold == "" && m.Kind == k.kind }); len(names) > 0 {
			kinds = append(kinds, k.plural+": "+strings.Join(names, ", "))
		}
	}
	for _, t := range e.Thresholds {
		names := e.names(func(m MissingRoot) bool { return m.Threshold == t.Name })
		kinds = append(kinds, fmt.Sprintf("threshold %s: %d of %d signers, missing from %s", t.Name, t.Found, t.Required, strings.Join(names, ", ")))
	}
	b.WriteString(strings.Join(kinds, " and "))
	if e.Policy != "" {
		fmt.Fprintf(&b, " (trust from %s)", e.Policy)
	}
	for _, a := range e.Answers {
		if len(a.Remarks) > 0 {
			fmt.Fprintf(&b, "; %s: %s", a.Store, strings.Join(a.Remarks, ", "))
		}
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, "; the search was cut short: %v", e.Cause)
	}
	return b.String()
}

// Unwrap makes a refusal ErrUnverified, and also what cut the search short.
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
	slices.SortFunc(e.Missing, func(a, b MissingRoot) int {
		return cmp.Or(cmp.Compare(a.Method, b.Method), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(e.Thresholds, func(a, b MissedThreshold) int { return cmp.Compare(a.Name, b.Name) })
	// Stable: places of one name stay in the order in which they were asked. Remarks keep the order of the signatures.
	slices.SortStableFunc(e.Answers, func(a, b Answer) int { return cmp.Compare(a.Store, b.Store) })
}

// plainNetworkError drops from an error what differs between two equal failures: the local port of a connection. What is
// known of a registry that is not reached stays.
func plainNetworkError(err error) string {
	if unread, ok := errors.AsType[*signatureError](err); ok {
		return unread.name + ": " + plainNetworkError(unread.err)
	}
	if unreached, ok := errors.AsType[*registry.UnreachedError](err); ok {
		return unreached.Says + ": " + plainNetworkError(unreached.Err)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Source != nil {
		return fmt.Sprintf("%s %s: %v", op.Op, op.Net, op.Err)
	}
	return err.Error()
}
