package sigstore

import (
	"crypto/x509"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/sigstore/sigstore-go/pkg/fulcio/certificate"
	sigstoreroot "github.com/sigstore/sigstore-go/pkg/root"
	sigstoreverify "github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/cluster-version/cvo/pkg/release"
)

// Authority is a sigstore root: a certificate authority and the accepted certificate identities. If its trust root has a transparency log
// or a timestamp authority, a certificate must have been valid when the signature was made; short-lived certificates (keyless signing)
// require that. Otherwise the certificate must be valid now.
type Authority struct {
	Name      string
	TrustRoot TrustRoot
	// Identities lists the accepted certificate identities. A certificate must match at least one.
	Identities []Identity
	// SignedIdentity restricts the image name in a signature; nil accepts any.
	SignedIdentity *configv1.PolicyIdentity
}

// Identity is an accepted certificate identity. A certificate must match every field that is set.
type Identity struct {
	// Issuer is the OpenID Connect issuer in a Fulcio certificate. IssuerRegexp must match the whole issuer. If the trust root has a source
	// of time, its certificates are from Fulcio, so one of the two fields is required. Other certificates have no issuer.
	Issuer       string `json:"issuer,omitempty"`
	IssuerRegexp string `json:"issuerRegexp,omitempty"`
	// Email, URI and Hostname are subject alternative names of the certificate.
	Email    string `json:"email,omitempty"`
	URI      string `json:"uri,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	// SubjectRegexp must match a whole email address, URI or host name among the subject alternative names.
	SubjectRegexp string `json:"subjectRegexp,omitempty"`
}

// Validate rejects an authority that would accept no signer, or everyone with a certificate of the authority.
func (a Authority) Validate() error {
	if len(a.TrustRoot.authorities) == 0 {
		return errors.New("it has no certificate authority: add root certificates")
	}
	if len(a.Identities) == 0 {
		return errors.New("it has no identity and would accept every certificate of the authority: add one to identities")
	}
	for _, i := range a.Identities {
		if err := i.validate(); err != nil {
			return err
		}
	}
	return validateSignedIdentity(a.SignedIdentity)
}

func (i Identity) validate() error {
	subject := i.Email != "" || i.URI != "" || i.Hostname != ""
	switch {
	case !subject && i.SubjectRegexp == "":
		return errors.New("an identity has no subject: set email, uri, hostname or subjectRegexp")
	case subject && i.SubjectRegexp != "":
		return errors.New("an identity has both subjectRegexp and a subject: remove one")
	case i.Issuer != "" && i.IssuerRegexp != "":
		return errors.New("an identity has both issuer and issuerRegexp: remove one")
	}
	for _, r := range []string{i.IssuerRegexp, i.SubjectRegexp} {
		if _, err := wholeRegexp(r); err != nil {
			return fmt.Errorf("reading regular expression %q of an identity: %w", r, err)
		}
	}
	return nil
}

// wholeRegexp compiles a pattern that must match the whole text. A partial match would accept "https://evil.example/https://github.com/us".
func wholeRegexp(pattern string) (*regexp.Regexp, error) {
	// The pattern must be valid by itself, because otherwise it could close the group around it.
	if _, err := regexp.Compile(pattern); err != nil {
		return nil, err
	}
	return regexp.Compile(`\A(?:` + pattern + `)\z`)
}

// String describes the identity in messages.
func (i Identity) String() string {
	var parts []string
	for _, p := range []struct{ format, value string }{
		{"email %s", i.Email},
		{"URI %s", i.URI},
		{"host name %s", i.Hostname},
		{"subject matching %s", i.SubjectRegexp},
		{"issuer %s", i.Issuer},
		{"issuer matching %s", i.IssuerRegexp},
	} {
		if p.value != "" {
			parts = append(parts, fmt.Sprintf(p.format, p.value))
		}
	}
	return strings.Join(parts, ", ")
}

// Overlaps reports whether a certificate is known to match both identities. It compares a regular expression only with fixed values and
// equal expressions.
func (i Identity) Overlaps(o Identity) bool {
	if i == o {
		return true
	}
	if !compatible(i.Issuer, i.IssuerRegexp, o.Issuer, o.IssuerRegexp) {
		return false
	}
	if i.SubjectRegexp != "" && o.SubjectRegexp != "" {
		return i.SubjectRegexp == o.SubjectRegexp
	}
	for _, pair := range [][2]string{{i.Email, o.Email}, {i.URI, o.URI}, {i.Hostname, o.Hostname}} {
		mine, other := pair[0], pair[1]
		if mine != "" && (mine == other || matches(o.SubjectRegexp, mine)) || other != "" && matches(i.SubjectRegexp, other) {
			return true
		}
	}
	return false
}

// compatible reports whether one value may satisfy two requirements, each of which is a fixed value, an expression or nothing.
func compatible(value, pattern, otherValue, otherPattern string) bool {
	switch {
	case value+pattern == "" || otherValue+otherPattern == "":
		return true
	case value != "" && otherValue != "":
		return value == otherValue
	case value != "":
		return matches(otherPattern, value)
	case otherValue != "":
		return matches(pattern, otherValue)
	}
	return pattern == otherPattern
}

func matches(pattern, text string) bool {
	if pattern == "" {
		return false
	}
	whole, err := wholeRegexp(pattern)
	return err == nil && whole.MatchString(text)
}

// match returns the subject of the certificate that matches the identity.
func (i Identity) match(c *x509.Certificate, issuer string) (string, bool) {
	subject := ""
	for _, want := range []struct {
		value string
		ok    func() bool
	}{
		{i.Email, func() bool { return slices.Contains(c.EmailAddresses, i.Email) }},
		{i.URI, func() bool { return slices.Contains(uris(c), i.URI) }},
		{i.Hostname, func() bool { return c.VerifyHostname(i.Hostname) == nil }},
	} {
		if want.value == "" {
			continue
		}
		if !want.ok() {
			return "", false
		}
		if subject == "" {
			subject = want.value
		}
	}
	if i.SubjectRegexp != "" {
		pattern, err := wholeRegexp(i.SubjectRegexp)
		at := -1
		if err == nil {
			at = slices.IndexFunc(subjects(c), pattern.MatchString)
		}
		if at < 0 {
			return "", false
		}
		subject = subjects(c)[at]
	}
	if i.Issuer != "" && i.Issuer != issuer {
		return "", false
	}
	if i.IssuerRegexp != "" {
		if pattern, err := wholeRegexp(i.IssuerRegexp); err != nil || !pattern.MatchString(issuer) {
			return "", false
		}
	}
	return subject, subject != ""
}

func uris(c *x509.Certificate) []string {
	out := make([]string, len(c.URIs))
	for i, u := range c.URIs {
		out[i] = u.String()
	}
	return out
}

// subjects returns the subject alternative names of a certificate that identities can match.
func subjects(c *x509.Certificate) []string {
	return slices.Concat(c.EmailAddresses, uris(c), c.DNSNames)
}

// Verify returns the signer if the signature is valid for the image and its certificate was issued by the authority to one of the
// identities.
func (a Authority) Verify(s *Signature, image release.Image, now time.Time) (release.Evidence, error) {
	if s.certificate == nil {
		return release.Evidence{}, errors.New("signed with a bare key, not with a certificate")
	}
	if err := strongKey(s.certificate.PublicKey); err != nil {
		return release.Evidence{}, fmt.Errorf("checking the certificate's key: %w", err)
	}
	e, err := a.identify(s.certificate)
	if err != nil {
		return release.Evidence{}, err
	}
	observed, err := a.TrustRoot.observe(s, s.certificate.PublicKey)
	if err != nil {
		return release.Evidence{}, err
	}
	times := observed.times
	switch {
	case !a.TrustRoot.HasTimeSource():
		times = []time.Time{now}
	case len(times) == 0:
		return release.Evidence{}, errors.New("no trusted source confirms the time of the signature: a log's signed entry timestamp or a timestamp authority is required")
	}
	if err := a.checkChain(s, times); err != nil {
		return release.Evidence{}, err
	}
	if err := s.checkSignature(s.certificate.PublicKey, image, a.SignedIdentity); err != nil {
		return release.Evidence{}, err
	}
	e.SignedAt, e.Log = s.claimedAt, observed.entry
	if len(observed.times) > 0 {
		e.SignedAt = observed.times[0]
	}
	return e, nil
}

// identify returns the identity in a certificate if it is accepted. It does not check whether the certificate is authentic.
func (a Authority) identify(c *x509.Certificate) (release.Evidence, error) {
	extensions, err := certificate.ParseExtensions(c.Extensions)
	if err != nil {
		return release.Evidence{}, fmt.Errorf("reading the certificate: %w", err)
	}
	fingerprint, err := fingerprintOf(c.PublicKey)
	if err != nil {
		return release.Evidence{}, err
	}
	for _, i := range a.Identities {
		if subject, ok := i.match(c, extensions.Issuer); ok {
			return release.Evidence{
				Identity: subject, Issuer: extensions.Issuer, KeyID: fingerprint, Certificate: certificateFingerprint(c),
			}, nil
		}
	}
	wanted := make([]string, len(a.Identities))
	for n, i := range a.Identities {
		wanted[n] = i.String()
	}
	by := ""
	if extensions.Issuer != "" {
		by = fmt.Sprintf(" by issuer %q", extensions.Issuer)
	}
	return release.Evidence{}, fmt.Errorf("the certificate is for %q%s, expected %s", subjects(c), by, strings.Join(wanted, " or "))
}

// checkChain checks that the certificate has a valid chain to a trusted authority at each of the given times. If certificate logs are
// trusted, one of them must have logged the certificate.
func (a Authority) checkChain(s *Signature, times []time.Time) error {
	var chains [][]*x509.Certificate
	for _, at := range times {
		var err error
		if chains, err = a.chains(s, at); err != nil {
			return fmt.Errorf("the certificate was not valid at %s or not issued by a trusted authority: %w", at.UTC().Format(time.RFC3339), err)
		}
	}
	if len(a.TrustRoot.ct) == 0 {
		return nil
	}
	if err := sigstoreverify.VerifySignedCertificateTimestamp(chains, 1, material{TrustRoot: &a.TrustRoot}); err != nil {
		return fmt.Errorf("the certificate is not in a trusted certificate log: %w", err)
	}
	return nil
}

func (a Authority) chains(s *Signature, at time.Time) ([][]*x509.Certificate, error) {
	var failures []error
	for _, authority := range a.TrustRoot.authorities {
		if f, ok := authority.(*sigstoreroot.FulcioCertificateAuthority); ok {
			withChain := *f
			withChain.Intermediates = slices.Concat(f.Intermediates, s.chain)
			authority = &withChain
		}
		chains, err := authority.Verify(s.certificate, at)
		if err == nil {
			return chains, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}
