package operator

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
	"k8s.io/utils/clock"
)

// guard lets those in whom the API server knows and allows: it has a bearer token reviewed (TokenReview), or verifies a
// client certificate with the cluster's client CA, and then has the access reviewed (SubjectAccessReview) as one to a
// path that is no resource. Kubernetes has a library for this that every API server uses, k8s.io/apiserver; with its
// admission, encryption and tracing it would double our dependencies for these two requests.
//
// What it leaves out: the headers of a front proxy, and impersonation, which only the API server itself can check.
type guard struct {
	reviewer interface {
		Create(context.Context, *authenticationv1.TokenReview, metav1.CreateOptions) (*authenticationv1.TokenReview, error)
	}
	accesses interface {
		Create(context.Context, *authorizationv1.SubjectAccessReview, metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
	}
	clientCA *clientCA
	// tokens and access hold answers for a short while, so that one who asks each second costs the API server little.
	tokens, access *reviews
	// asking has room for the questions that are put to the API server at a time: strangers decide how many callers
	// there are, not how much the operator asks.
	asking chan struct{}
}

const (
	// remembered is how long an answer holds, yes or no: so long it takes until a right given or taken shows.
	remembered = 10 * time.Second
	// maxRemembered bounds the memory that strangers can make us use; some 300 bytes each.
	maxRemembered = 1024
	maxAsking     = 8
	reviewTimeout = 10 * time.Second
)

// reviews are answers of the API server by a hash of the question: a token is nowhere kept in clear.
type reviews struct{ cache *cache.LRUExpireCache }

func newReviews(clk clock.PassiveClock) *reviews {
	return &reviews{cache: cache.NewLRUExpireCacheWithClock(maxRemembered, clk)}
}

// unauthenticatedError says who is not let in because nobody knows them.
type unauthenticatedError struct{ why string }

func (e *unauthenticatedError) Error() string { return e.why }

// protect serves only those who may get the path of the request.
func (g *guard) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), reviewTimeout)
		defer cancel()
		user, err := g.authenticate(ctx, req)
		var unknown *unauthenticatedError
		switch {
		case errors.As(err, &unknown):
			w.Header().Set("WWW-Authenticate", `Bearer realm="kubernetes"`)
			refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, err.Error())
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
			refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, missingRule(user.Username, req.URL.Path))
		default:
			next.ServeHTTP(w, req)
		}
	})
}

// unavailable answers one who could not be checked. The reason is for our log: it may tell of the cluster's insides.
func (g *guard) unavailable(w http.ResponseWriter, req *http.Request, err error) {
	logr.FromContextOrDiscard(req.Context()).V(1).Info("caller could not be checked", "path", req.URL.Path, "error", err.Error())
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
		"the API server could not be asked who you are and what you may see; try again")
}

// missingRule says what would let a caller in.
func missingRule(user, path string) string {
	role := map[string]string{RolloutPath: "cluster-version-operator-viewer", MetricsPath: "system:monitoring"}[path]
	return fmt.Sprintf("%q may not get %s: bind a ClusterRole with the rule {nonResourceURLs: [%q], verbs: [\"get\"]}, such as %s",
		user, path, path, role)
}

// authenticate finds out who asks. A certificate that verifies is enough; otherwise the token decides.
func (g *guard) authenticate(ctx context.Context, req *http.Request) (*authenticationv1.UserInfo, error) {
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
	return nil, &unauthenticatedError{"this path is for known callers: send a bearer token, or a client certificate that the cluster's client CA has signed"}
}

func bearer(req *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "bearer") && token != ""
}

func (g *guard) authenticateToken(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
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

// authenticated is the group of everybody whom the cluster knows; the API server adds it after authentication.
const authenticated = "system:authenticated"

func withAuthenticated(user authenticationv1.UserInfo) *authenticationv1.UserInfo {
	if !slices.Contains(user.Groups, authenticated) {
		user.Groups = append(slices.Clone(user.Groups), authenticated)
	}
	return &user
}

// allowed asks whether a user may get a path.
func (g *guard) allowed(ctx context.Context, user *authenticationv1.UserInfo, path string) (bool, error) {
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

// ask puts a question to the API server when there is room for it.
func (g *guard) ask(ctx context.Context, question func() error) error {
	select {
	case g.asking <- struct{}{}:
		defer func() { <-g.asking }()
		return question()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// certificateUser is the user of a certificate as the API server reads it: the common name, with the organizations as
// groups.
func certificateUser(c *x509.Certificate) *authenticationv1.UserInfo {
	return withAuthenticated(authenticationv1.UserInfo{Username: c.Subject.CommonName, Groups: c.Subject.Organization})
}
