// Package guard restricts the paths of a process's endpoint to callers that the API server authenticates and authorizes. A caller sends a
// bearer token, which the API server reviews, or a client certificate signed by the cluster's client CA. All API servers use the library
// k8s.io/apiserver for this. With its admission, encryption and tracing it would double our dependencies for these two requests.
//
// Headers of a front proxy and impersonation are not supported, because only the API server itself can check them.
package guard

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// Guard protects handlers. The API server reviews a bearer token (TokenReview), or the Guard verifies a client certificate with the
// cluster's client CA. Then the API server reviews the access to the path (SubjectAccessReview).
type Guard struct {
	// roles maps paths to the ClusterRoles that permit them, for messages.
	roles map[string]string

	reviewer interface {
		Create(context.Context, *authenticationv1.TokenReview, metav1.CreateOptions) (*authenticationv1.TokenReview, error)
	}
	accesses interface {
		Create(context.Context, *authorizationv1.SubjectAccessReview, metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
	}
	clientCA *clientCA
	// tokens and access cache responses for a short time, so that a client that polls every second costs the API server little.
	tokens, access *reviews
	// asking limits the concurrent requests to the API server. Strangers determine the number of callers, and must not determine the number
	// of the operator's requests.
	asking chan struct{}
}

// New returns a guard with clients of the API server. roles maps paths to the ClusterRoles that permit them.
func New(clk clock.PassiveClock, cfg *rest.Config, httpClient *http.Client, roles map[string]string) (*Guard, error) {
	authentication, err := authenticationclient.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating authentication client: %w", err)
	}
	authorization, err := authorizationclient.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating authorization client: %w", err)
	}
	core, err := corev1client.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating client for the client CA: %w", err)
	}
	return &Guard{
		roles:    roles,
		tokens:   newReviews(clk),
		access:   newReviews(clk),
		asking:   make(chan struct{}, maxAsking),
		reviewer: authentication.TokenReviews(),
		accesses: authorization.SubjectAccessReviews(),
		clientCA: &clientCA{clock: clk, configMaps: core.ConfigMaps(clientCANamespace)},
	}, nil
}

const (
	// remembered is the time for which a response is cached, positive or negative. A changed permission takes effect after at most this
	// time.
	remembered = 10 * time.Second
	// maxRemembered limits the memory that strangers can make us use, at about 300 bytes per entry.
	maxRemembered = 1024
	maxAsking     = 8
	reviewTimeout = 10 * time.Second
)

// reviews caches the API server's responses by a hash of the request, so that no token is stored in plain text.
type reviews struct{ cache *cache.LRUExpireCache }

func newReviews(clk clock.PassiveClock) *reviews {
	return &reviews{cache: cache.NewLRUExpireCacheWithClock(maxRemembered, clk)}
}

// unauthenticatedError is the reason why a caller is not authenticated.
type unauthenticatedError struct{ why string }

func (e *unauthenticatedError) Error() string { return e.why }

// Protect serves only callers with permission to get the path of the request.
func (g *Guard) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), reviewTimeout)
		defer cancel()
		user, err := g.authenticate(ctx, req)
		var unknown *unauthenticatedError
		switch {
		case errors.As(err, &unknown):
			w.Header().Set("WWW-Authenticate", `Bearer realm="kubernetes"`)
			Refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, err.Error())
			return
		case err != nil:
			g.unavailable(w, req, err)
			return
		}
		allowed, err := g.allowed(ctx, user, req.URL.Path)
		switch {
		case err != nil:
			g.unavailable(w, req, err)
		case !allowed:
			Refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, g.missingRule(user.Username, req.URL.Path))
		default:
			next.ServeHTTP(w, req)
		}
	})
}

// unavailable responds to a caller that could not be checked. The reason is only logged because it may reveal details of the cluster.
func (g *Guard) unavailable(w http.ResponseWriter, req *http.Request, err error) {
	logr.FromContextOrDiscard(req.Context()).V(1).Info("cannot check the caller", "path", req.URL.Path, "error", err.Error())
	w.Header().Set("Retry-After", "1")
	Refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
		"the API server could not check your identity and permissions; try again")
}

// missingRule describes the permission that a caller lacks.
func (g *Guard) missingRule(user, path string) string {
	return fmt.Sprintf("%q may not get %s: bind a ClusterRole with the rule {nonResourceURLs: [%q], verbs: [\"get\"]}, such as %s",
		user, path, path, g.roles[path])
}

// authenticate returns the caller. A valid certificate is sufficient; otherwise the token decides.
func (g *Guard) authenticate(ctx context.Context, req *http.Request) (*authenticationv1.UserInfo, error) {
	var untrusted error
	if req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
		user, err := g.clientCA.authenticate(ctx, req.TLS.PeerCertificates)
		if err == nil {
			return user, nil
		}
		untrusted = err
	}
	token, given := bearer(req)
	switch {
	case given:
		return g.authenticateToken(ctx, token)
	case untrusted != nil:
		return nil, untrusted
	}
	return nil, &unauthenticatedError{"this path requires authentication: send a bearer token, or a client certificate signed by the cluster's client CA"}
}

func bearer(req *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "bearer") && token != ""
}

func (g *Guard) authenticateToken(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	key := sha256.Sum256([]byte(token))
	answer, known := g.tokens.cache.Get(key)
	if !known {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		err := g.ask(ctx, func() (err error) {
			review, err = g.reviewer.Create(ctx, review, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("reviewing a token: %w", err)
		}
		var user *authenticationv1.UserInfo
		if review.Status.Authenticated {
			user = withAuthenticated(review.Status.User)
		}
		g.tokens.cache.Add(key, user, remembered)
		answer = user
	}
	user, ok := answer.(*authenticationv1.UserInfo)
	if !ok || user == nil {
		return nil, &unauthenticatedError{"the API server does not accept the bearer token"}
	}
	return user, nil
}

// authenticated is the group of all authenticated users, which the API server adds after authentication.
const authenticated = "system:authenticated"

func withAuthenticated(user authenticationv1.UserInfo) *authenticationv1.UserInfo {
	if !slices.Contains(user.Groups, authenticated) {
		user.Groups = append(slices.Clone(user.Groups), authenticated)
	}
	return &user
}

// allowed reports whether a user may get a path.
func (g *Guard) allowed(ctx context.Context, user *authenticationv1.UserInfo, path string) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}
	for name, values := range user.Extra {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	question, err := json.Marshal(spec)
	if err != nil {
		return false, fmt.Errorf("reviewing an access: %w", err)
	}
	key := sha256.Sum256(question)
	if answer, known := g.access.cache.Get(key); known {
		return answer == true, nil
	}
	review := &authorizationv1.SubjectAccessReview{Spec: spec}
	err = g.ask(ctx, func() (err error) {
		review, err = g.accesses.Create(ctx, review, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("reviewing an access: %w", err)
	}
	g.access.cache.Add(key, review.Status.Allowed, remembered)
	return review.Status.Allowed, nil
}

// ask sends a request to the API server once the limit allows it.
func (g *Guard) ask(ctx context.Context, question func() error) error {
	select {
	case g.asking <- struct{}{}:
		defer func() { <-g.asking }()
		return question()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// certificateUser returns the user of a certificate by the API server's rules: the common name is the user, and the organizations are the
// groups.
func certificateUser(c *x509.Certificate) *authenticationv1.UserInfo {
	return withAuthenticated(authenticationv1.UserInfo{Username: c.Subject.CommonName, Groups: c.Subject.Organization})
}

// Refuse responds with a Status object like those of the API server, so that clients can distinguish reasons.
func Refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}
