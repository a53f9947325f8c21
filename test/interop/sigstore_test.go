package interop

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sigstore is everything that keyless signing needs, on this machine: the test's OpenID Connect issuer, Fulcio, Rekor (second generation,
// with its log in a folder) and a timestamp authority.
type sigstore struct {
	dir string
	// trustedRoot and signingConfig are files for sigstore's clients. withoutLog is a trusted root without Rekor.
	trustedRoot, withoutLog, signingConfig string
	// fulcio and authority are the addresses of the servers.
	fulcio, authority string
	issuer            *issuer
}

const validFrom = "2020-01-01T00:00:00Z"

func startSigstore(t *testing.T) *sigstore {
	t.Helper()
	s := &sigstore{dir: t.TempDir(), issuer: startIssuer(t)}
	rekor := s.startRekor(t)
	s.fulcio, s.authority = s.startFulcio(t), s.startAuthority(t)
	root := []string{
		"trusted-root", "create",
		"--fulcio=url=" + s.fulcio + ",certificate-chain=" + filepath.Join(s.dir, "fulcio.pem") + ",start-time=" + validFrom,
		"--tsa=url=" + s.authority + ",certificate-chain=" + filepath.Join(s.dir, "authority.pem") + ",start-time=" + validFrom,
	}
	s.withoutLog = filepath.Join(s.dir, "without-log.json")
	run(t, s.dir, "cosign", append(root, "--out="+s.withoutLog)...)
	s.trustedRoot = filepath.Join(s.dir, "trusted-root.json")
	run(t, s.dir, "cosign", append(root, "--out="+s.trustedRoot,
		"--rekor=url="+rekor+",public-key="+filepath.Join(s.dir, "rekor.pub")+",start-time="+validFrom)...)
	s.signingConfig = filepath.Join(s.dir, "signing-config.json")
	run(t, s.dir, "cosign", "signing-config", "create", "--out="+s.signingConfig,
		"--fulcio=url="+s.fulcio+",api-version=1,start-time="+validFrom+",operator=test",
		"--rekor=url="+rekor+",api-version=2,start-time="+validFrom+",operator=test", "--rekor-config=ANY",
		"--oidc-provider=url="+s.issuer.url+",api-version=1,start-time="+validFrom+",operator=test",
		"--tsa=url="+s.authority+",api-version=1,start-time="+validFrom+",operator=test", "--tsa-config=ANY")
	return s
}

func (s *sigstore) startFulcio(t *testing.T) (url string) {
	t.Helper()
	config, err := json.Marshal(map[string]any{"OIDCIssuers": map[string]any{
		s.issuer.url: map[string]string{"IssuerURL": s.issuer.url, "ClientID": "sigstore", "Type": "email"},
	}})
	require.NoError(t, err)
	path := filepath.Join(s.dir, "fulcio.json")
	require.NoError(t, os.WriteFile(path, config, 0o600))
	port := freePort(t)
	url = "http://127.0.0.1:" + port
	serve(t, s.dir, "fulcio", url+"/api/v2/configuration", "serve", "--ca=ephemeralca", "--ct-log-url=", "--config-path="+path,
		"--host=127.0.0.1", "--port="+port, "--grpc-host=127.0.0.1", "--grpc-port="+freePort(t), "--metrics-port="+freePort(t))
	fetch(t, url+"/api/v1/rootCert", filepath.Join(s.dir, "fulcio.pem"))
	return url
}

func (s *sigstore) startRekor(t *testing.T) (url string) {
	t.Helper()
	key := filepath.Join(s.dir, "rekor.key")
	writeKeyPair(t, key, filepath.Join(s.dir, "rekor.pub"))
	port := freePort(t)
	url = "http://127.0.0.1:" + port
	// Clients expect the log to sign with the name of its host.
	serve(t, s.dir, "rekor-server", url+"/healthz", "serve", "--hostname=127.0.0.1", "--storage-dir="+filepath.Join(s.dir, "log"),
		"--signer-filepath="+key, "--http-port="+port, "--grpc-port="+freePort(t), "--http-metrics-port="+freePort(t),
		"--checkpoint-interval=1s", "--batch-max-age=50ms", "--persistent-antispam=false")
	return url
}

func (s *sigstore) startAuthority(t *testing.T) (url string) {
	t.Helper()
	port := freePort(t)
	base := "http://127.0.0.1:" + port
	serve(t, s.dir, "timestamp-server", base+"/ping", "serve", "--host=127.0.0.1", "--port="+port, "--timestamp-signer=memory",
		"--disable-ntp-monitoring")
	fetch(t, base+"/api/v1/timestamp/certchain", filepath.Join(s.dir, "authority.pem"))
	return base + "/api/v1/timestamp"
}

// fetch writes the response of a URL to a file.
func fetch(t *testing.T, url, path string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", url, data)
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

func writeKeyPair(t *testing.T, private, public string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	der, err = x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
}

// issuer is an OpenID Connect provider that issues the tokens that a test requests.
type issuer struct {
	url string
	key *ecdsa.PrivateKey
}

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	i := &issuer{key: key}
	mux := http.NewServeMux()
	answer := func(path string, document func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(document())
		})
	}
	answer("/.well-known/openid-configuration", func() any {
		return map[string]any{
			"issuer": i.url, "jwks_uri": i.url + "/keys", "authorization_endpoint": i.url + "/auth", "token_endpoint": i.url + "/token",
			"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
			"id_token_signing_alg_values_supported": []string{"ES256"},
		}
	})
	answer("/keys", func() any {
		point, err := key.PublicKey.Bytes() // 4, x, y
		if err != nil {
			return err
		}
		return map[string]any{"keys": []any{map[string]string{
			"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "test",
			"x": base64.RawURLEncoding.EncodeToString(point[1:33]), "y": base64.RawURLEncoding.EncodeToString(point[33:]),
		}}}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	i.url = server.URL
	return i
}

// token returns a file with a token for an e-mail address (RFC 7519, ES256 of RFC 7518).
func (i *issuer) token(t *testing.T, email string) string {
	t.Helper()
	encode := func(document any) string {
		data, err := json.Marshal(document)
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(data)
	}
	now := time.Now()
	signed := encode(map[string]string{"alg": "ES256", "typ": "JWT", "kid": "test"}) + "." + encode(map[string]any{
		"iss": i.url, "aud": "sigstore", "sub": email, "email": email, "email_verified": true,
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "nonce": fmt.Sprint(now.UnixNano()),
	})
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	require.NoError(t, err)
	sig := append(fixed(r), fixed(s)...)
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(signed+"."+base64.RawURLEncoding.EncodeToString(sig)), 0o600))
	return path
}

// fixed returns a number of a P-256 signature as 32 bytes.
func fixed(n *big.Int) []byte { return n.FillBytes(make([]byte, 32)) }
