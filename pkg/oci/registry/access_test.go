package registry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/registry"
)

// content is the only layer of the image in these tests. It is large enough to be interrupted.
var content = bytes.Repeat([]byte("release payload "), 1<<14)

func image(t *testing.T) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(content, types.OCIUncompressedLayer))
	require.NoError(t, err)
	return img
}

// push writes an image with one layer and returns its reference by digest.
func push(t *testing.T, access *registry.Access, pullspec string) name.Digest {
	t.Helper()
	img := image(t)
	ref, err := access.Reference(pullspec)
	require.NoError(t, err)
	require.NoError(t, remote.Push(ref, img, append(access.Remote(), remote.WithContext(t.Context()))...))
	digest, err := img.Digest()
	require.NoError(t, err)
	return ref.Context().Digest(digest.String())
}

// pull reads the layer of an image. It parses the reference with the Access first, because an Access checks the addresses of unknown
// hosts.
func pull(t *testing.T, access *registry.Access, ref name.Reference) ([]byte, error) {
	t.Helper()
	ref, err := access.Reference(ref.String())
	require.NoError(t, err)
	img, err := remote.Image(ref, append(access.Remote(), remote.WithContext(t.Context()))...)
	if err != nil {
		return nil, failure.Explain("pulling", ref, err)
	}
	return layer(t, img)
}

func layer(t *testing.T, img v1.Image) ([]byte, error) {
	t.Helper()
	layers, err := img.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	body, err := layers[0].Compressed()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

//threat:plain-http-redirect it does not retry untrusted certificates
func TestAccessChecksCertificates(t *testing.T) {
	const host = "registry.example"
	n := newNetwork(t)
	n.serve(host, images())
	access := n.access(registry.Options{})
	ref := push(t, access, host+"/platform/release:1.0.0")
	got, err := pull(t, access, ref)
	require.NoError(t, err)
	assert.Equal(t, content, got)
	assert.Subset(t, []string{"CONNECT registry.example:443"}, n.proxy.Requests(), "a request bypassed the proxy")

	t.Run("it does not retry untrusted certificates", func(t *testing.T) {
		before := len(n.proxy.Requests())
		_, err := pull(t, n.access(registry.Options{Authorities: newNetwork(t).authority.Pool()}), ref)
		require.ErrorContains(t, err, "the certificate of registry.example is not signed by a trusted authority")
		assert.Len(t, n.proxy.Requests(), before+1, "a certificate error is not retried")
	})
	t.Run("it skips certificate checks for listed registries", func(t *testing.T) {
		for _, insecure := range []string{host, registry.AnyRegistry} {
			access := n.access(registry.Options{Authorities: newNetwork(t).authority.Pool(), Insecure: []string{insecure}})
			allowed, err := access.Reference(ref.String())
			require.NoError(t, err)
			got, err := pull(t, access, allowed)
			require.NoError(t, err)
			assert.Equal(t, content, got)
		}
	})
	t.Run("it checks the certificates of unlisted registries", func(t *testing.T) {
		_, err := pull(t, n.access(registry.Options{Authorities: newNetwork(t).authority.Pool(), Insecure: []string{"other.example", "registry.example:5000"}}), ref)
		require.ErrorContains(t, err, "certificate")
	})
}

// TestAccessWithoutTLSNeedsPermission covers hosts with private addresses too, for which the library tries plain HTTP after any failure.
//
//threat:plain-http-redirect
func TestAccessWithoutTLSNeedsPermission(t *testing.T) {
	n := newNetwork(t)
	n.serve("10.0.0.2", images())
	for host, want := range map[string]string{
		"plain.example": "Forbidden", "plain.example:5000": "add plain.example:5000 to the insecure registries, or give it a certificate",
		"10.0.0.1": "registry 10.0.0.1 cannot be reached over TLS", "10.0.0.1:5000": "add 10.0.0.1:5000 to the insecure registries, or give it a certificate",
	} {
		n.servePlain(host, images())
		access := n.access
		if strings.HasPrefix(host, "10.") {
			access = n.direct
		}
		ref, err := access(registry.Options{}).Reference(host + "/a:b")
		require.NoError(t, err)
		_, err = pull(t, access(registry.Options{}), ref)
		require.ErrorContains(t, err, want)
		if explained, ok := errors.AsType[*failure.AccessError](err); ok {
			assert.Equal(t, strings.HasSuffix(host, ":5000"), explained.WithoutTLS, host)
		}
		assert.Empty(t, n.requests(host, ""), "a request was sent without TLS")

		allowed := access(registry.Options{Insecure: []string{host}})
		got, err := pull(t, allowed, push(t, allowed, host+"/a:b"))
		require.NoError(t, err)
		assert.Equal(t, content, got)
	}

	access := n.access(registry.Options{})
	got, err := pull(t, access, push(t, access, "10.0.0.2/a:b"))
	require.NoError(t, err, "TLS works for private addresses")
	assert.Equal(t, content, got)
}

// TestPrivateRegistryThatIsDownNeedsNoPermission covers failures that do not show whether the registry has TLS.
func TestPrivateRegistryThatIsDownNeedsNoPermission(t *testing.T) {
	n := newNetwork(t)
	n.serve("10.0.0.1:5000", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if assert.NoError(t, err) {
			_ = conn.Close()
		}
	}))
	for _, tt := range []struct {
		name, host, want string
		access           func(registry.Options) *registry.Access
	}{
		{"it closes the connection", "10.0.0.1:5000", "closes the connection without a response", n.direct},
		{"it does not listen", "10.0.0.2:5000", "cannot be reached", n.direct},
		{"the proxy does not reach it", "10.0.0.3:5000", "Forbidden", n.access},
	} {
		access := tt.access(registry.Options{})
		ref, err := access.Reference(tt.host + "/a:b")
		require.NoError(t, err)
		_, err = pull(t, access, ref)
		require.ErrorContains(t, err, tt.want, tt.name)
		assert.NotContains(t, err.Error(), "insecure registries", tt.name)
	}
}

// TestPlainHTTPCarriesNoCredentials covers every form of credentials, and a token server that an insecure registry names.
//
//threat:plain-http-credentials
func TestPlainHTTPCarriesNoCredentials(t *testing.T) {
	const plain, encrypted = "plain.example", "encrypted.example"
	for _, tt := range []struct {
		name, auth string
		guard      func(http.Handler) http.Handler
	}{
		{"password", `"username": "me", "password": "secret"`, func(next http.Handler) http.Handler { return withBasicAuth("me", "secret", next) }},
		{"password for a token server", `"username": "me", "password": "secret"`, (&tokenServer{service: plain, realm: "http://" + plain + "/token", user: "me", password: "secret"}).guard},
		{"refresh token", `"identitytoken": "secret"`, (&tokenServer{service: plain, realm: "http://" + plain + "/token"}).guard},
		{"access token", `"registrytoken": "secret"`, func(next http.Handler) http.Handler { return next }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t)
			n.servePlain(plain, tt.guard(images()))
			keychain := pullSecret(t, `{"auths": {"`+plain+`": {`+tt.auth+`}}}`)
			access := n.access(registry.Options{Insecure: []string{plain}, Keychain: keychain})
			ref, err := access.Reference(plain + "/a:b")
			require.NoError(t, err)
			_, err = pull(t, access, ref)
			require.Error(t, err)
			for _, r := range n.requests(plain, "") {
				assert.Empty(t, r.authorization, r.path)
				assert.NotEqual(t, http.MethodPost, r.method, "a form was sent to %s", r.path)
			}
			assert.NotEmpty(t, n.requests(plain, ""))
		})
	}

	t.Run("a caller may allow them", func(t *testing.T) {
		n := newNetwork(t)
		n.servePlain(plain, withBasicAuth("me", "secret", images()))
		keychain := pullSecret(t, `{"auths": {"`+plain+`": {"username": "me", "password": "secret"}}}`)
		access := n.access(registry.Options{Insecure: []string{plain}, Keychain: keychain, PlainCredentials: true})
		got, err := pull(t, access, push(t, access, plain+"/a:b"))
		require.NoError(t, err)
		assert.Equal(t, content, got)
	})
	t.Run("HTTPS carries them", func(t *testing.T) {
		n := newNetwork(t)
		n.serve(encrypted, withBasicAuth("me", "secret", images()))
		keychain := pullSecret(t, `{"auths": {"`+encrypted+`": {"username": "me", "password": "secret"}}}`)
		access := n.access(registry.Options{Insecure: []string{encrypted}, Keychain: keychain})
		got, err := pull(t, access, push(t, access, encrypted+"/a:b"))
		require.NoError(t, err)
		assert.Equal(t, content, got)
	})
}

// TestPlainHTTPNamesNoReceiverOfCredentials has a network that answers in place of a registry without TLS, and names a server of its own.
//
//threat:plain-http-credentials
func TestPlainHTTPNamesNoReceiverOfCredentials(t *testing.T) {
	const plain, evil, realm = "plain.example", "evil.example", "https://evil.example/token"
	challenge := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", text)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	redirectTo := func(url string) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, url, http.StatusTemporaryRedirect)
		}
	}
	const password, refreshToken = `"username": "me", "password": "secret"`, `"identitytoken": "secret"`
	for _, tt := range []struct {
		name, auth  string
		plain, evil http.HandlerFunc
		want        string
	}{
		{"a token server gets no password", password, challenge(`Bearer realm="` + realm + `",service="s"`), challenge(""), "credentials are not sent without TLS: serve plain.example over HTTPS"},
		{"a token server gets no refresh token", refreshToken, challenge(`Bearer realm="` + realm + `"`), challenge(""), "evil.example would get the credentials of a registry without TLS"},
		{"an escaped realm", password, challenge(`Bearer realm="https:\/\/evil.example/token"`), challenge(""), "realm"},
		{"two realms", password, challenge(`Bearer realm="https://evil.example/a",realm="` + realm + `"`), challenge(""), "credentials are not sent"},
		{"a redirect of the token server", password, challenge(`Bearer realm="` + realm + `"`), func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/token" {
				redirectTo("/other").ServeHTTP(w, req)
			}
		}, ""},
		{"a redirect of the registry", password, redirectTo("https://" + evil + "/v2/"), challenge(`Bearer realm="` + realm + `"`), "credentials are not sent"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t)
			n.servePlain(plain, tt.plain)
			n.serve(evil, tt.evil)
			access := n.access(registry.Options{Insecure: []string{plain}, Keychain: pullSecret(t, `{"auths": {"`+plain+`": {`+tt.auth+`}}}`)})
			ref, err := access.Reference(plain + "/a:b")
			require.NoError(t, err)
			_, err = pull(t, access, ref)
			require.Error(t, err)
			require.ErrorContains(t, failure.Explain("pulling", ref, err), tt.want)
			for _, r := range n.requests("", "") {
				assert.Empty(t, r.authorization, r.path)
				assert.NotEqual(t, http.MethodPost, r.method, "a form was sent to %s", r.path)
			}
		})
	}
	for _, tt := range []struct {
		name    string
		options registry.Options
		user    string
	}{
		{"a token server may serve everyone", registry.Options{}, ""},
		{"a caller may allow credentials", registry.Options{PlainCredentials: true}, "me"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t)
			tokens := &tokenServer{service: plain, realm: "https://tokens.example/token", user: tt.user}
			if tt.user != "" {
				tokens.password = "secret"
			}
			n.serve("tokens.example", tokens)
			n.servePlain(plain, tokens.guard(images()))
			tt.options.Insecure, tt.options.Keychain = []string{plain}, pullSecret(t, `{"auths": {"`+plain+`": {`+password+`}}}`)
			access := n.access(tt.options)
			got, err := pull(t, access, push(t, access, plain+"/a:b"))
			require.NoError(t, err)
			assert.Equal(t, content, got)
		})
	}
}

// TestCredentialsGoOnlyToTheirRegistry covers every server in a pull: a registry with a separate token server, storage that the registry
// redirects to, and a mirror.
//
//threat:credentials-leak-mirrors
func TestCredentialsGoOnlyToTheirRegistry(t *testing.T) {
	n := newNetwork(t)
	store := images()
	tokens := &tokenServer{service: "registry.example", realm: "https://auth.example/token", user: "reader", password: "r-secret"}
	n.serve("auth.example", tokens)
	n.serve("storage.example", breaking(1, 1000, store))
	n.serve("registry.example", tokens.guard(redirectBlobs("https://storage.example", store)))
	n.serve("mirror.example", withBasicAuth("mirror", "m-secret", images()))
	access := n.access(registry.Options{
		Keychain: pullSecret(t, `{"auths": {
			"registry.example/platform": {"username": "reader", "password": "r-secret"},
			"mirror.example": {"username": "mirror", "password": "m-secret"},
			"storage.example": {"username": "nobody", "password": "n-secret"}
		}}`),
		Mirrors: mirrors(t, "registry.example", "mirror.example/copy"),
	})
	ref := push(t, access, "registry.example/platform/release:1.0.0")
	push(t, access, "mirror.example/copy/platform/release:1.0.0")

	candidates := access.Candidates(ref)
	require.Len(t, candidates, 2)
	for _, candidate := range candidates {
		got, err := pull(t, access, candidate)
		require.NoError(t, err)
		assert.Equal(t, content, got)
	}

	for _, r := range n.requests("mirror.example", "") {
		assert.Contains(t, []string{"", "Basic bWlycm9yOm0tc2VjcmV0"}, r.authorization)
	}
	for _, r := range n.requests("registry.example", "") {
		assert.NotContains(t, r.authorization, "Basic", "the registry received a password instead of a token")
	}
	for _, r := range n.requests("auth.example", "") {
		assert.Equal(t, "Basic cmVhZGVyOnItc2VjcmV0", r.authorization)
	}
	stored := n.requests("storage.example", "")
	require.Len(t, stored, 2, "the download and its resumption")
	for _, r := range stored {
		assert.Empty(t, r.authorization)
	}
	assert.Equal(t, fmt.Sprintf("bytes=1000-%d", len(content)-1), stored[1].ranged)
}

//threat:credentials-leak-mirrors it explains rejected credentials
//threat:tokens-expire-middle
func TestTokensAreRequested(t *testing.T) {
	n := newNetwork(t)
	tokens := &tokenServer{service: "registry.example", realm: "https://registry.example/token", user: "me", password: "secret"}
	guarded := tokens.guard(breaking(1, 1000, images()))
	var breaks func()
	mux := http.NewServeMux()
	mux.Handle("/token", tokens)
	mux.HandleFunc("/v2/", func(w http.ResponseWriter, req *http.Request) {
		defer func() {
			if broken := recover(); broken != nil {
				if breaks != nil {
					breaks()
				}
				panic(broken)
			}
		}()
		guarded.ServeHTTP(w, req)
	})
	n.serve("registry.example", mux)
	access := n.access(registry.Options{Keychain: pullSecret(t, `{"auths": {"registry.example": {"auth": "bWU6c2VjcmV0"}}}`)})
	ref := push(t, access, "registry.example/platform/release:1.0.0")

	img, err := remote.Image(ref, access.Remote()...)
	require.NoError(t, err)
	tokens.expire()
	breaks = tokens.expire
	got, err := layer(t, img)
	require.NoError(t, err, "tokens may expire between requests and during a resumed download")
	assert.Equal(t, content, got)

	t.Run("it explains rejected credentials", func(t *testing.T) {
		for _, tt := range []struct{ secret, want string }{
			{`{}`, "no credentials for registry.example were found"},
			{`{"auths": {"registry.example": {"username": "me", "password": "wrong"}}}`, `does not accept the credentials of "me"`},
		} {
			_, err := pull(t, n.access(registry.Options{Keychain: pullSecret(t, tt.secret)}), ref)
			require.ErrorIs(t, err, failure.ErrUnauthorized)
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "wrong")
		}
	})
	t.Run("it uses identity tokens", func(t *testing.T) {
		_, err := pull(t, n.access(registry.Options{Keychain: pullSecret(t, `{"auths": {"registry.example": {"identitytoken": "i-am-me"}}}`)}), ref)
		require.NoError(t, err)
	})
}

// tokenServer issues tokens to a single user.
type tokenServer struct {
	service, realm, user, password string

	mu     sync.Mutex
	serial int
}

// ServeHTTP implements the token endpoint.
func (s *tokenServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	user, password, _ := req.BasicAuth()
	if req.Method == http.MethodPost && req.FormValue("refresh_token") == "i-am-me" {
		user, password = s.user, s.password
	}
	if user != s.user || password != s.password {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"token": s.token(), "expires_in": 60})
}

func (s *tokenServer) token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("token-%d", s.serial)
}

// expire invalidates all earlier tokens.
func (s *tokenServer) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
}

func (s *tokenServer) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "Bearer "+s.token() {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q,service=%q`, s.realm, s.service))
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// redirectBlobs redirects downloads of blobs.
func redirectBlobs(to string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/blobs/") {
			http.Redirect(w, req, to+req.URL.Path, http.StatusTemporaryRedirect)
			return
		}
		next.ServeHTTP(w, req)
	})
}

//threat:plain-http-redirect
func TestInsecureRedirectsAreRejected(t *testing.T) {
	n := newNetwork(t)
	store := images()
	n.servePlain("storage.example", store)
	n.serve("registry.example", redirectBlobs("http://storage.example", store))
	access := n.access(registry.Options{})
	ref := push(t, access, "registry.example/a:b")
	_, err := pull(t, access, ref)
	require.ErrorIs(t, err, failure.ErrWithoutTLS, "a redirect from TLS to plain HTTP")
	assert.Empty(t, n.requests("storage.example", ""))
}

func TestErrorListsEveryAttempt(t *testing.T) {
	n := newNetwork(t)
	n.serve("a.example", images())
	n.serve("b.example", withBasicAuth("me", "secret", images()))
	access := n.access(registry.Options{Mirrors: mirrors(t, "registry.example", "a.example", "b.example")})
	ref, err := access.Reference("registry.example/x@sha256:" + strings.Repeat("0", 64))
	require.NoError(t, err)
	var attempts []failure.Attempt
	for _, candidate := range access.Candidates(ref) {
		_, err := remote.Get(candidate, access.Remote()...)
		attempts = append(attempts, failure.Attempt{Ref: candidate, Err: err})
	}
	require.Len(t, attempts, 3)

	err = failure.ExplainAttempts("pulling", ref, attempts)
	for _, want := range []string{"pulling registry.example/x@sha256:", "all 3 sources failed", "a.example/x: not found", "b.example/x: unauthorized", "registry.example/x: "} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorIs(t, err, failure.ErrUnauthorized)
	require.NotErrorIs(t, err, failure.ErrNotFound, "the third source may have the content")
	assert.False(t, failure.IsNotFound(err))

	err = failure.ExplainAttempts("pulling", ref, attempts[:1])
	require.ErrorIs(t, err, failure.ErrNotFound, "no contacted source has the content")
	require.ErrorContains(t, err, "the mirror sets allow only one source")
	assert.True(t, failure.IsNotFound(err))

	err = failure.ExplainAttempts("pulling", ref, nil)
	require.ErrorIs(t, err, failure.ErrNotFound)
	require.ErrorContains(t, err, "the mirror sets block registry.example")

	err = failure.ExplainAttempts("pulling", ref, []failure.Attempt{{Ref: ref, Err: errors.New("x")}})
	require.EqualError(t, err, "pulling "+ref.String()+": x")
}
