// Package failure classifies errors of registries and images, and explains them to users. It takes errors as the network and the registry
// library return them. It does not retry; package transport does.
package failure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
)

// Callers distinguish these kinds of failure with errors.Is.
var (
	// ErrUnauthorized means that the registry requires other credentials.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrNotFound means that the registry does not have the requested content.
	ErrNotFound = errors.New("not found")
	// ErrIntegrity means that content does not match its digest, or that an image is malformed.
	ErrIntegrity = errors.New("integrity check failed")
	// ErrLimit means that a response exceeds its maximum size.
	ErrLimit = errors.New("limit exceeded")
	// ErrWithoutTLS means that the connection to a registry would not be encrypted.
	ErrWithoutTLS = errors.New("would be contacted without TLS")
	// ErrPlainCredentials means that a request would send credentials without encryption, or to a server that a registry without TLS names.
	ErrPlainCredentials = errors.New("would get the credentials of a registry without TLS")
	// ErrStalled means that a registry sent no data, or too little, for as long as registry.Options.Stall.
	ErrStalled = errors.New("no progress")
)

// Explain wraps a registry's error with its kind and a remedy. The message starts with doing and ref.
func Explain(doing string, ref name.Reference, err error) error {
	return fmt.Errorf("%s %s: %w", doing, ref, explain(ref, err))
}

func explain(ref name.Reference, err error) error {
	err = redirect.ShowAddresses(err)
	host, repository := ref.Context().RegistryStr(), ref.Context().RepositoryStr()
	inaccessible := func(format string, args ...any) error {
		return &AccessError{Explanation: fmt.Sprintf(format, args...), Err: err}
	}
	// The library tries plain HTTP after a certificate error, for some hosts. The certificate is the reason.
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &authority):
		return inaccessible("the certificate of %s is not signed by a trusted authority: add that authority to the trusted certificates", host)
	case errors.As(err, &hostname):
		return inaccessible("the certificate of %s is not valid for this host name: use one of the certificate's names in the pullspec", host)
	case errors.As(err, &certificate):
		return inaccessible("the certificate of %s is not valid: renew it, and check the clocks of the registry and of this machine", host)
	}
	if status, ok := errors.AsType[*transport.Error](err); ok {
		switch status.StatusCode {
		case http.StatusUnauthorized:
			return &AccessError{kind: ErrUnauthorized, Err: err, Explanation: fmt.Sprintf("%v: registry %s refuses access to %s: %s",
				ErrUnauthorized, host, repository, unauthorized(host, status.Request))}
		case http.StatusForbidden:
			return &AccessError{kind: ErrUnauthorized, Err: err, Explanation: fmt.Sprintf(
				"%v: registry %s denies access to %s: grant access to the account in the pull secret, or use another account", ErrUnauthorized, host, repository)}
		case http.StatusNotFound:
			switch {
			case status.Request != nil && status.Request.Method != http.MethodGet && status.Request.Method != http.MethodHead:
				return inaccessible("registry %s does not accept this content in %s: check that the registry still runs, create the repository if the registry requires that, or run the command again if the upload was dropped", host, repository)
			case !lacksContent(status):
				return inaccessible("registry %s does not serve the API of a registry: check that it is running and that its address is correct", host)
			}
			return fmt.Errorf("%w: registry %s has no %s in %s: check the pullspec, or mirror the image to this registry: %w",
				ErrNotFound, host, ref.Identifier(), repository, err)
		case http.StatusTooManyRequests:
			return inaccessible("registry %s is limiting this client's request rate: wait, use a mirror, or send fewer requests at once", host)
		}
		if status.StatusCode >= http.StatusInternalServerError {
			return inaccessible("registry %s, or a proxy in front of it, reports a server error: check its log, or add a mirror", host)
		}
		return err
	}
	var plain tls.RecordHeaderError
	var dns *net.DNSError
	var connection *net.OpError
	var request *url.Error
	var waited net.Error
	switch {
	case errors.As(err, &connection) && connection.Op == "proxyconnect":
		return inaccessible("the proxy for registry %s cannot be reached: check the proxy's address, or exclude the registry from the proxy", host)
	// The library also tries plain HTTP for private addresses, after any failure. Only this one shows that the registry has no TLS.
	case errors.As(err, &plain) && errors.As(err, &request) && strings.HasPrefix(request.URL, "https://"+host+"/"):
		return &AccessError{Explanation: fmt.Sprintf("add %s to the insecure registries, or give it a certificate", host), Err: err, WithoutTLS: true}
	case errors.As(err, &request) && errors.Is(request.Err, ErrWithoutTLS):
		return inaccessible("registry %s refers to a server without TLS: add that server to the insecure registries, or give it a certificate", host)
	case errors.Is(err, ErrPlainCredentials):
		return inaccessible("serve %s over HTTPS, or remove its credentials", host)
	case errors.As(err, &dns) && dns.IsNotFound:
		return inaccessible("cannot resolve host %s (DNS): check the pullspec, the name server and the proxy", dns.Name)
	case errors.Is(err, context.Canceled):
		return err // canceled by the caller
	case errors.As(err, &connection) && connection.Op == "dial" && errors.Is(err, ErrWithoutTLS) && !strings.Contains(host, ":"):
		// Plain HTTP has another default port than HTTPS, so the registry may listen there.
		return inaccessible("registry %s cannot be reached over TLS: check that it is running, that its address is correct and that no firewall or proxy blocks it; if it has no TLS, add it to the insecure registries", host)
	case errors.As(err, &connection) && connection.Op == "dial":
		return inaccessible("registry %s cannot be reached: check that it is running, that its address is correct and that no firewall or proxy blocks it, or add a mirror", host)
	case errors.Is(err, ErrStalled), errors.Is(err, context.DeadlineExceeded), errors.As(err, &waited) && waited.Timeout():
		return inaccessible("registry %s does not respond in time: check the load of the registry and the network, or add a mirror", host)
	case errors.Is(err, syscall.ECONNRESET), errors.As(err, &request) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return inaccessible("registry %s, or a proxy in front of it, closes the connection without a response: check its log, or add a mirror", host)
	}
	return err
}

// AccessError means that a registry, or a proxy in front of it, gave no access to its content: it does not respond, refuses the
// credentials, or has an invalid certificate.
type AccessError struct {
	// Explanation names the registry, the problem and the remedy.
	Explanation string
	Err         error
	// WithoutTLS is true if the registry has no TLS, but is not one of the insecure registries.
	WithoutTLS bool
	// kind is ErrUnauthorized or nil.
	kind error
}

func (e *AccessError) Error() string { return e.Explanation + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *AccessError) Unwrap() error { return e.Err }

// Is implements the interface of errors.Is.
func (e *AccessError) Is(target error) bool { return e.kind != nil && target == e.kind }

// StableText returns the text of a network error without the connection's local port, so that repeated failures read the same. It keeps
// the explanation of an AccessError.
func StableText(err error) string {
	if inaccessible, ok := errors.AsType[*AccessError](err); ok {
		return inaccessible.Explanation + ": " + StableText(inaccessible.Err)
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Source != nil {
		return fmt.Sprintf("%s %s: %v", op.Op, op.Net, op.Err)
	}
	return err.Error()
}

// NoConnection reports whether a registry refuses connections or does not respond, so that another request would only waste time. It is
// false after any response, even an error, because the next request may succeed.
func NoConnection(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && (operation.Op == "dial" || operation.Op == "proxyconnect") || IsSlow(err)
}

// IsTransient reports whether the same request may succeed a moment later.
func IsTransient(err error) bool {
	var dns *net.DNSError
	var plain tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	var operation *net.OpError
	switch {
	case errors.Is(err, ErrStalled):
		return true
	case errors.Is(err, ErrWithoutTLS), errors.Is(err, ErrPlainCredentials), errors.Is(err, ErrLimit), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &dns):
		return !dns.IsNotFound
	case errors.As(err, &plain), errors.As(err, &certificate):
		return false
	case errors.As(err, &operation):
		return operation.Op != "remote error" && operation.Op != "local error" // TLS errors
	}
	var timeout net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		slices.ContainsFunc([]error{syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNREFUSED}, func(no error) bool { return errors.Is(err, no) }) ||
		errors.As(err, &timeout) && timeout.Timeout() ||
		// net/http does not export these errors.
		strings.Contains(err.Error(), "http2: ") || strings.Contains(err.Error(), "stream error: ")
}

// IsSlow reports whether an error occurred only after a long wait.
func IsSlow(err error) bool {
	var timeout net.Error
	return errors.Is(err, ErrStalled) || errors.As(err, &timeout) && timeout.Timeout()
}

// unauthorized describes the problem with the credentials that a request sent to the registry or its token server.
func unauthorized(host string, req *http.Request) string {
	remedy := fmt.Sprintf("add credentials for %s to the pull secret, or check the existing ones", host)
	switch {
	case req == nil:
		return remedy
	case redirect.IsDistrusted(req.URL):
		return fmt.Sprintf("credentials are not sent without TLS: serve %s over HTTPS", host)
	case req.Header.Get("Authorization") == "" && req.Method != http.MethodPost: // identity tokens are posted
		return fmt.Sprintf("no credentials for %s were found: add some to the pull secret", host)
	}
	if user, _, ok := req.BasicAuth(); ok {
		return fmt.Sprintf("it does not accept the credentials of %q: check the entry for %s in the pull secret", user, host)
	}
	return remedy
}

// IsNotFound reports whether a registry responded that it does not have the content. After several attempts, it requires that response
// from every location.
func IsNotFound(err error) bool {
	if attempts, ok := errors.AsType[*attemptsError](err); ok {
		return attempts.Is(ErrNotFound)
	}
	status, ok := errors.AsType[*transport.Error](err)
	return ok && status.StatusCode == http.StatusNotFound && lacksContent(status)
}

// content matches the paths of requests for content in the registry API (OCI distribution specification, section "Endpoints").
var content = regexp.MustCompile(`^/v2/.+/(manifests|blobs|tags|referrers)/`)

// lacksContent reports whether a response with status 404 answers a read of content, or a request that such a read was redirected to. The
// first request to a registry and the request for a token get that status only from another server, such as an ingress whose registry is
// down.
func lacksContent(status *transport.Error) bool {
	if status.Request == nil {
		return true
	}
	first := redirect.First(status.Request)
	return (first.Method == http.MethodGet || first.Method == http.MethodHead) && content.MatchString(first.URL.Path)
}

// Attempt is the result of a request to one of several locations of the same content, such as a mirror.
type Attempt struct {
	Ref name.Reference
	// Err is nil if no time was left for the location.
	Err error
}

// ExplainAttempts explains why none of several locations returned the content. The error names every location. It matches ErrNotFound only
// if all locations lack the content. It matches any other error if at least one attempt failed with it.
func ExplainAttempts(doing string, ref name.Reference, attempts []Attempt) error {
	switch {
	case len(attempts) == 0:
		return fmt.Errorf("%s %s: %w: the mirror sets block %s and list no mirror for the image: add a mirror for %s",
			doing, ref, ErrNotFound, ref.Context().RegistryStr(), ref.Context())
	case len(attempts) == 1 && attempts[0].Ref.Name() == ref.Name():
		return Explain(doing, ref, attempts[0].Err)
	}
	explained := &attemptsError{}
	for _, a := range attempts {
		if a.Err == nil {
			explained.notAsked = append(explained.notAsked, a.Ref.Context().String())
			continue
		}
		explained.attempts = append(explained.attempts, Attempt{Ref: a.Ref, Err: explain(a.Ref, a.Err)})
	}
	return fmt.Errorf("%s %s: %w", doing, ref, explained)
}

// attemptsError combines the errors of several attempts. A joined error would match ErrNotFound as soon as a single mirror lacks the
// content.
type attemptsError struct {
	// attempts have explained errors.
	attempts []Attempt
	// notAsked are the locations for which no time was left.
	notAsked []string
}

// Error implements error.
func (e *attemptsError) Error() string {
	texts := make([]string, 0, len(e.attempts))
	for _, a := range e.attempts {
		texts = append(texts, fmt.Sprintf("%s: %v", a.Ref.Context(), a.Err))
	}
	switch {
	case len(e.notAsked) > 0:
		return fmt.Sprintf("%s; no time was left for %s", strings.Join(texts, "; "), strings.Join(e.notAsked, ", "))
	case len(texts) == 1:
		return "the mirror sets allow only one source: " + texts[0]
	}
	return fmt.Sprintf("all %d sources failed: %s", len(texts), strings.Join(texts, "; "))
}

// Is implements the interface of errors.Is.
func (e *attemptsError) Is(target error) bool {
	is := func(a Attempt) bool { return errors.Is(a.Err, target) }
	if target == ErrNotFound {
		return len(e.notAsked) == 0 && !slices.ContainsFunc(e.attempts, func(a Attempt) bool { return !is(a) })
	}
	return slices.ContainsFunc(e.attempts, is)
}

// As implements the interface of errors.As.
func (e *attemptsError) As(target any) bool {
	return slices.ContainsFunc(e.attempts, func(a Attempt) bool { return errors.As(a.Err, target) })
}
