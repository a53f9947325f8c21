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
	// ErrPlainCredentials means that a request would send credentials without encryption.
	ErrPlainCredentials = errors.New("would get credentials over plain HTTP")
	// ErrStalled means that a registry sent no data for as long as registry.Options.Stall.
	ErrStalled = errors.New("no progress")
)

// Explain wraps a registry's error with its kind and a remedy. The message starts with doing and ref.
func Explain(doing string, ref name.Reference, err error) error {
	return fmt.Errorf("%s %s: %w", doing, ref, explain(ref, err))
}

func explain(ref name.Reference, err error) error {
	err = redirect.ShowAddresses(err)
	host, repository := ref.Context().RegistryStr(), ref.Context().RepositoryStr()
	if status, ok := errors.AsType[*transport.Error](err); ok {
		switch status.StatusCode {
		case http.StatusUnauthorized:
			return fmt.Errorf("%w: registry %s refuses access to %s: %s: %w", ErrUnauthorized, host, repository, unauthorized(host, status.Request), err)
		case http.StatusForbidden:
			return fmt.Errorf("%w: registry %s accepts the credentials but denies access to %s: grant the account access, or use another account: %w",
				ErrUnauthorized, host, repository, err)
		case http.StatusNotFound:
			return fmt.Errorf("%w: registry %s has no %s in %s: check the pullspec, or mirror the image to this registry: %w",
				ErrNotFound, host, ref.Identifier(), repository, err)
		case http.StatusTooManyRequests:
			return fmt.Errorf("registry %s is limiting this client's request rate: wait, use a mirror, or send fewer requests at once: %w", host, err)
		}
		if status.StatusCode >= http.StatusInternalServerError {
			return &UnreachedError{Explanation: fmt.Sprintf("registry %s, or a proxy in front of it, reports a server error: check its log, or add a mirror", host), Err: err}
		}
		return err
	}
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var dns *net.DNSError
	switch {
	case errors.As(err, &authority):
		return fmt.Errorf("the certificate of %s is not signed by a trusted authority: add that authority to the trusted certificates: %w", host, err)
	case errors.As(err, &hostname):
		return fmt.Errorf("the certificate of %s is not valid for this host name: use one of the certificate's names in the pullspec: %w", host, err)
	case errors.Is(err, ErrWithoutTLS):
		return fmt.Errorf("add %s to the insecure registries, or give it a certificate: %w", host, err)
	case errors.Is(err, ErrPlainCredentials):
		return fmt.Errorf("serve %s over HTTPS, or remove its credentials: %w", host, err)
	case errors.As(err, &dns) && dns.IsNotFound:
		return &UnreachedError{Explanation: fmt.Sprintf("cannot resolve host %s (DNS): check the pullspec, the name server and the proxy", dns.Name), Err: err}
	}
	return unreached(host, err)
}

// UnreachedError means that a registry, or a proxy in front of it, gave no usable response.
type UnreachedError struct {
	// Explanation names the registry, the problem and the remedy.
	Explanation string
	Err         error
}

func (e *UnreachedError) Error() string { return e.Explanation + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *UnreachedError) Unwrap() error { return e.Err }

// unreached adds a remedy to an error that prevented all communication with a registry.
func unreached(host string, err error) error {
	var connection *net.OpError
	var request *url.Error
	var waited net.Error
	explanation := ""
	switch {
	case errors.Is(err, context.Canceled):
		return err // canceled by the caller
	case errors.As(err, &connection) && connection.Op == "proxyconnect":
		explanation = "the proxy for registry %s cannot be reached: check the proxy's address, or exclude the registry from the proxy"
	case errors.As(err, &connection) && connection.Op == "dial":
		explanation = "registry %s cannot be reached: check that it is running, that its address is correct and that no firewall or proxy blocks it, or add a mirror"
	case errors.Is(err, ErrStalled), errors.Is(err, context.DeadlineExceeded), errors.As(err, &waited) && waited.Timeout():
		explanation = "registry %s does not respond in time: check the load of the registry and the network, or add a mirror"
	case errors.Is(err, syscall.ECONNRESET), errors.As(err, &request) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		explanation = "registry %s, or a proxy in front of it, closes the connection without a response: check its log, or add a mirror"
	default:
		return err
	}
	return &UnreachedError{Explanation: strings.Replace(explanation, "%s", host, 1), Err: err}
}

// StableText returns the text of a network error without the connection's local port, so that repeated failures read the same. It keeps
// the explanation of an unreachable registry.
func StableText(err error) string {
	if unreached, ok := errors.AsType[*UnreachedError](err); ok {
		return unreached.Explanation + ": " + StableText(unreached.Err)
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
	var status *transport.Error
	return errors.As(err, &status) && status.StatusCode == http.StatusNotFound
}

// Attempt is the result of a request to one of several locations of the same content, such as a mirror.
type Attempt struct {
	Ref name.Reference
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
	explained := make([]Attempt, len(attempts))
	for i, a := range attempts {
		explained[i] = Attempt{Ref: a.Ref, Err: explain(a.Ref, a.Err)}
	}
	return fmt.Errorf("%s %s: %w", doing, ref, &attemptsError{attempts: explained})
}

// attemptsError combines the errors of several attempts. A joined error would match ErrNotFound as soon as a single mirror lacks the
// content.
type attemptsError struct {
	// attempts have explained errors.
	attempts []Attempt
}

// Error implements error.
func (e *attemptsError) Error() string {
	texts := make([]string, 0, len(e.attempts))
	for _, a := range e.attempts {
		texts = append(texts, fmt.Sprintf("%s: %v", a.Ref.Context(), a.Err))
	}
	if len(texts) == 1 {
		return "the mirror sets allow only one source: " + texts[0]
	}
	return fmt.Sprintf("all %d sources failed: %s", len(texts), strings.Join(texts, "; "))
}

// Is implements the interface of errors.Is.
func (e *attemptsError) Is(target error) bool {
	is := func(a Attempt) bool { return errors.Is(a.Err, target) }
	if target == ErrNotFound {
		return !slices.ContainsFunc(e.attempts, func(a Attempt) bool { return !is(a) })
	}
	return slices.ContainsFunc(e.attempts, is)
}

// As implements the interface of errors.As.
func (e *attemptsError) As(target any) bool {
	return slices.ContainsFunc(e.attempts, func(a Attempt) bool { return errors.As(a.Err, target) })
}
