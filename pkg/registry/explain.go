package registry

import (
	"context"
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
)

// Kinds of failure that callers tell apart with errors.Is.
var (
	// ErrUnauthorized means that the registry wants other credentials.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrNotFound means that the registry does not have what was asked for.
	ErrNotFound = errors.New("not found")
	// ErrLimit means that an answer is larger than it may be.
	ErrLimit = errors.New("limit exceeded")
	// ErrWithoutTLS means that a registry would have been spoken to in the clear.
	ErrWithoutTLS = errors.New("would be spoken to without TLS")
	// ErrStalled means that a registry sent nothing for Options.Stall.
	ErrStalled = errors.New("no progress")
)

// Explain gives a registry's refusal its kind and its remedy.
func Explain(doing string, ref name.Reference, err error) error {
	return fmt.Errorf("%s %s: %w", doing, ref, explain(ref, err))
}

func explain(ref name.Reference, err error) error {
	host, repository := ref.Context().RegistryStr(), ref.Context().RepositoryStr()
	if status, ok := errors.AsType[*transport.Error](err); ok {
		switch status.StatusCode {
		case http.StatusUnauthorized:
			return fmt.Errorf("%w: registry %s refuses access to %s: %s: %w", ErrUnauthorized, host, repository, unauthorized(host, status.Request), err)
		case http.StatusForbidden:
			return fmt.Errorf("%w: registry %s knows the credentials but forbids access to %s: give their account that right, or use another: %w",
				ErrUnauthorized, host, repository, err)
		case http.StatusNotFound:
			return fmt.Errorf("%w: registry %s has no %s in %s: check the pullspec, or mirror the image there: %w",
				ErrNotFound, host, ref.Identifier(), repository, err)
		case http.StatusTooManyRequests:
			return fmt.Errorf("registry %s limits the requests of this client: wait, use a mirror, or send fewer at a time: %w", host, err)
		}
		if status.StatusCode >= http.StatusInternalServerError {
			return &UnreachedError{Says: fmt.Sprintf("registry %s, or a proxy before it, does not work: look at its log, or add a mirror", host), Err: err}
		}
		return err
	}
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var dns *net.DNSError
	switch {
	case errors.As(err, &authority):
		return fmt.Errorf("nobody trusted vouches for the certificate of %s: trust the authority that signed it: %w", host, err)
	case errors.As(err, &hostname):
		return fmt.Errorf("the certificate of %s is for other names: use one of them in the pullspec: %w", host, err)
	case errors.Is(err, ErrWithoutTLS):
		return fmt.Errorf("allow %s as an insecure registry, or give it a certificate: %w", host, err)
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Errorf("nothing is known under the name %s: check the pullspec, or the name server and the proxy: %w", dns.Name, err)
	}
	return unreached(host, err)
}

// UnreachedError says that a registry, or the proxy before it, gave no answer of any use.
type UnreachedError struct {
	// Says names the registry, what is wrong with it and the remedy.
	Says string
	Err  error
}

func (e *UnreachedError) Error() string { return e.Says + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *UnreachedError) Unwrap() error { return e.Err }

// unreached gives a remedy to what keeps a registry from being talked to at all.
func unreached(host string, err error) error {
	var connection *net.OpError
	var request *url.Error
	var waited net.Error
	says := ""
	switch {
	case errors.Is(err, context.Canceled):
		return err // we have let it be
	case errors.As(err, &connection) && connection.Op == "proxyconnect":
		says = "the proxy on the way to registry %s cannot be reached: check the proxy's address, or except the registry from it"
	case errors.As(err, &connection) && connection.Op == "dial":
		says = "registry %s cannot be reached: see that it runs, that its address is right and that no firewall or proxy is in the way, or add a mirror"
	case errors.Is(err, ErrStalled), errors.As(err, &waited) && waited.Timeout():
		says = "registry %s does not answer in time: see what keeps it or the network busy, or add a mirror"
	case errors.Is(err, syscall.ECONNRESET), errors.As(err, &request) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		says = "registry %s, or a proxy before it, closes the connection without an answer: look at its log, or add a mirror"
	default:
		return err
	}
	return &UnreachedError{Says: strings.Replace(says, "%s", host, 1), Err: err}
}

// NoConnection reports whether an error says that nothing listens at a registry, or that it does not answer: another
// request would wait as long, in vain. A registry that answers, be it with an error, may answer the next one better.
func NoConnection(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && (operation.Op == "dial" || operation.Op == "proxyconnect") || slow(err)
}

// unauthorized says what is wrong with the credentials of a request: what the registry, or its token server, was shown.
func unauthorized(host string, req *http.Request) string {
	remedy := fmt.Sprintf("add credentials for %s to the pull secret, or check those that are there", host)
	switch {
	case req == nil:
		return remedy
	case req.Header.Get("Authorization") == "" && req.Method != http.MethodPost: // identity tokens are posted
		return fmt.Sprintf("no credentials for %s were found: add some to the pull secret", host)
	}
	if user, _, ok := req.BasicAuth(); ok {
		return fmt.Sprintf("it does not accept the credentials of %q: check those for %s in the pull secret", user, host)
	}
	return remedy
}

// IsNotFound reports whether a registry answered that it has no such thing; of several that were asked, all of them.
func IsNotFound(err error) bool {
	if attempts, ok := errors.AsType[*attemptsError](err); ok {
		return attempts.Is(ErrNotFound)
	}
	var status *transport.Error
	return errors.As(err, &status) && status.StatusCode == http.StatusNotFound
}

// Attempt is what came of asking one of the Candidates.
type Attempt struct {
	Ref name.Reference
	Err error
}

// ExplainAttempts is Explain for content that was asked for at each of its Candidates in vain. It names them all. The
// result is ErrNotFound only if nobody has the content; what else happened to one attempt has happened to the whole.
func ExplainAttempts(doing string, ref name.Reference, attempts []Attempt) error {
	switch {
	case len(attempts) == 0:
		return fmt.Errorf("%s %s: %w: the mirror sets forbid to contact %s and name no mirror that can hold it: add a mirror for %s",
			doing, ref, ErrNotFound, ref.Context().RegistryStr(), ref.Context())
	case len(attempts) == 1 && attempts[0].Ref.Name() == ref.Name():
		return Explain(doing, ref, attempts[0].Err)
	}
	return fmt.Errorf("%s %s: %w", doing, ref, &attemptsError{attempts: attempts})
}

// attemptsError is one error of several. It is not a joined error, because that one would be "not found" as soon as one
// mirror of many lacks the content.
type attemptsError struct {
	attempts []Attempt
}

// Error implements error.
func (e *attemptsError) Error() string {
	texts := make([]string, 0, len(e.attempts))
	for _, a := range e.attempts {
		texts = append(texts, fmt.Sprintf("%s: %v", a.Ref.Context(), explain(a.Ref, a.Err)))
	}
	if len(texts) == 1 {
		return "only the mirror may be asked: " + texts[0]
	}
	return fmt.Sprintf("%d places were asked in vain: %s", len(texts), strings.Join(texts, "; "))
}

// Is is asked by errors.Is.
func (e *attemptsError) Is(target error) bool {
	is := func(a Attempt) bool { return errors.Is(explain(a.Ref, a.Err), target) }
	if target == ErrNotFound {
		return !slices.ContainsFunc(e.attempts, func(a Attempt) bool { return !is(a) })
	}
	return slices.ContainsFunc(e.attempts, is)
}

// As is asked by errors.As.
func (e *attemptsError) As(target any) bool {
	return slices.ContainsFunc(e.attempts, func(a Attempt) bool { return errors.As(explain(a.Ref, a.Err), target) })
}
