package verify

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

// Authority is a sigstore root that is a certificate authority together with whom it must have certified. With a
// transparency log or a timestamp authority in its trust root, a certificate counts if it was valid when the
// signature was made, as short-lived certificates need it (keyless signing); otherwise it must be valid now.
type Authority struct {
	Name      string
	TrustRoot TrustRoot
	// Identities are whom the certificate may be issued to; one of them is enough.
	Identities []Identity
	// SignedIdentity says which name a signature must give the image; nil accepts any.
	SignedIdentity *configv1.PolicyIdentity
}

// Identity is whom a certificate must be issued to. Every field that is set must match.
type Identity struct {
	// Issuer is the OpenID Connect issuer that Fulcio wrote into the certificate; IssuerRegexp matches all of it. One
	// of them is needed if the trust root keeps time, because the certificates are Fulcio's then; without, a
	// certificate has no such entry.
	Issuer       string `json:"issuer,omitempty"`
	IssuerRegexp string `json:"issuerRegexp,omitempty"`
	// Email, URI and Hostname are subject alternative names of the certificate.
	Email    string `json:"email,omitempty"`
	URI      string `json:"uri,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	// SubjectRegexp matches all of any email, URI or host name among the subject alternative names.
	SubjectRegexp string `json:"subjectRegexp,omitempty"`
}

func (a Authority) validate() error {
	if len(a.TrustRoot.authorities) == 0 {
		return errors.New("it names no certificate authority: give its root certificates")
	}
	if len(a.Identities) == 0 {
		return errors.New("it names no identity, and would accept whomever the authority certifies: add one to identities")
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
		return errors.New("an identity names no subject: set email, uri, hostname or subjectRegexp")
	case subject && i.SubjectRegexp != "":
		return errors.New("an identity has both subjectRegexp and a subject: leave one out")
	case i.Issuer != "" && i.IssuerRegexp != "":
		return errors.New("an identity has both issuer and issuerRegexp: leave one out")
	}
	for _, r := range []string{i.IssuerRegexp, i.SubjectRegexp} {
		if _, err := wholeRegexp(r); err != nil {
			return fmt.Errorf("reading regular expression %q of an identity: %w", r, err)
		}
	}
	return nil
}

// wholeRegexp matches all of a text: a pattern that matches somewhere inside would accept
// "https://evil.example/https://github.com/us".
func wholeRegexp(pattern string) (*regexp.Regexp, error) {
	// The pattern must be one by itself, or it could close our group.
	if _, err := regexp.Compile(pattern); err != nil {
		return nil, err
	}
	return regexp.Compile(`\A(?:` + pattern + `)\z`)
}

// String is the identity as messages tell it.
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

// match returns the subject by which the certificate is the identity's.
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

// subjects are the names that a certificate gives its owner.
func subjects(c *x509.Certificate) []string {
	return slices.Concat(c.EmailAddresses, uris(c), c.DNSNames)
}

// authorityRoot is satisfied by a signature with a certificate of the authority for one of the identities.
type authorityRoot struct{ Authority }

func (r authorityRoot) name() string           { return r.Name }
func (r authorityRoot) method() string         { return MethodSigstore }
func (r authorityRoot) kind() string           { return kindAuthority }
func (r authorityRoot) fingerprints() []string { return nil } // Two roots may share an authority.

func (r authorityRoot) check(c candidate, image release.Image, now time.Time) (release.Evidence, error) {
	if c.sigstore == nil {
		return release.Evidence{}, errors.New("not attached to the image")
	}
	s, err := c.sigstore()
	if err != nil {
		return release.Evidence{}, err
	}
	if s.certificate == nil {
		return release.Evidence{}, errors.New("signed with a bare key, not with a certificate")
	}
	if err := strongKey(s.certificate.PublicKey); err != nil {
		return release.Evidence{}, fmt.Errorf("the certificate's key: %w", err)
	}
	e, err := r.identify(s.certificate)
	if err != nil {
		return release.Evidence{}, err
	}
	observed, err := r.TrustRoot.observe(s, s.certificate.PublicKey)
	if err != nil {
		return release.Evidence{}, err
	}
	times := observed.times
	switch {
	case !r.TrustRoot.keepsTime():
		times = []time.Time{now}
	case len(times) == 0:
		return release.Evidence{}, errors.New("nobody trusted says when it was signed: it needs a log's signed entry timestamp or a timestamp authority")
	}
	if err := r.checkChain(s, times); err != nil {
		return release.Evidence{}, err
	}
	if err := s.checkSignature(s.certificate.PublicKey, image, r.SignedIdentity); err != nil {
		return release.Evidence{}, err
	}
	e.SignedAt, e.Log = s.claimedAt, observed.entry
	if len(observed.times) > 0 {
		e.SignedAt = observed.times[0]
	}
	return e, nil
}

// identify tells whom the certificate names, if it is somebody who may sign. Whether the certificate is genuine is
// not known yet.
func (r authorityRoot) identify(c *x509.Certificate) (release.Evidence, error) {
	extensions, err := certificate.ParseExtensions(c.Extensions)
	if err != nil {
		return release.Evidence{}, fmt.Errorf("reading the certificate: %w", err)
	}
	fingerprint, err := fingerprintOf(c.PublicKey)
	if err != nil {
		return release.Evidence{}, err
	}
	for _, i := range r.Identities {
		if subject, ok := i.match(c, extensions.Issuer); ok {
			return release.Evidence{
				Identity: subject, Issuer: extensions.Issuer, KeyID: fingerprint, Certificate: certificateFingerprint(c),
			}, nil
		}
	}
	wanted := make([]string, len(r.Identities))
	for n, i := range r.Identities {
		wanted[n] = i.String()
	}
	by := ""
	if extensions.Issuer != "" {
		by = fmt.Sprintf(" by issuer %q", extensions.Issuer)
	}
	return release.Evidence{}, fmt.Errorf("the certificate is for %q%s, expected %s", subjects(c), by, strings.Join(wanted, " or "))
}

// checkChain checks that the certificate leads to a trusted authority at every time at which the signature was seen,
// and that a certificate log knows it, if certificate logs are trusted.
func (r authorityRoot) checkChain(s *signed, times []time.Time) error {
	var chains [][]*x509.Certificate
	for _, at := range times {
		var err error
		if chains, err = r.chains(s, at); err != nil {
			return fmt.Errorf("the certificate was not valid at %s by an authority that is trusted: %w", at.UTC().Format(time.RFC3339), err)
		}
	}
	if len(r.TrustRoot.ct) == 0 {
		return nil
	}
	if err := sigstoreverify.VerifySignedCertificateTimestamp(chains, 1, material{TrustRoot: &r.TrustRoot}); err != nil {
		return fmt.Errorf("no certificate log that is trusted knows the certificate: %w", err)
	}
	return nil
}

func (r authorityRoot) chains(s *signed, at time.Time) ([][]*x509.Certificate, error) {
	var failures []error
	for _, authority := range r.TrustRoot.authorities {
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
