package operator

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/rollout"
)

func TestEndpointLetsInWhomTheClusterKnowsAndAllows(t *testing.T) {
	r := newReplica(t, Options{}).lead()
	admin := controlPlane.Config("test")
	cluster := kubernetes.NewForConfigOrDie(admin)
	serviceAccount := func(t *testing.T, name string) *rest.Config {
		t.Helper()
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := cluster.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{})
		require.NoError(t, err)
		request, err := cluster.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		require.NoError(t, err)
		return &rest.Config{BearerToken: request.Status.Token}
	}
	grant(t, person("vera"), "vera", nil, RolloutPath)
	grant(t, person("max"), "max", nil, MetricsPath)
	grant(t, rbacv1.Subject{Kind: "ServiceAccount", Name: "seer", Namespace: "default"}, "system:serviceaccount:default:seer", nil, RolloutPath)
	both := userNamed(t, "vera")
	both.BearerToken = "worth nothing beside a certificate that is good"

	for _, c := range []struct {
		name    string
		cfg     *rest.Config
		rollout int
		metrics int
		text    string
	}{
		{name: "an administrator's certificate", cfg: admin, rollout: 200, metrics: 200},
		{
			name: "a certificate of a user without a role", cfg: userNamed(t, "nobody"), rollout: 403, metrics: 403,
			text: `"nobody" may not get /debug/rollout: bind a ClusterRole with the rule {nonResourceURLs: ["/debug/rollout"], verbs: ["get"]}, such as cluster-version-operator-viewer`,
		},
		{name: "a certificate of a user who may see the rollout", cfg: userNamed(t, "vera"), rollout: 200, metrics: 403},
		{name: "a certificate of a user who may see the metrics", cfg: userNamed(t, "max"), rollout: 403, metrics: 200},
		{name: "a good certificate and a bad token", cfg: both, rollout: 200, metrics: 403},
		{name: "a token of a service account with the role", cfg: serviceAccount(t, "seer"), rollout: 200, metrics: 403},
		{
			name: "a token of a service account without", cfg: serviceAccount(t, "blind"), rollout: 403, metrics: 403,
			text: `"system:serviceaccount:default:blind" may not get /debug/rollout`,
		},
		{
			name: "a token that nobody issued", cfg: &rest.Config{BearerToken: "garbage"}, rollout: 401, metrics: 401,
			text: "the API server does not accept the bearer token",
		},
		{
			name: "a certificate of another authority", cfg: newAuthority(t, "other").clientConfig(t, "vera"), rollout: 401, metrics: 401,
			text: "the cluster's client CA does not vouch for the client certificate",
		},
		{name: "no credentials", cfg: &rest.Config{}, rollout: 401, metrics: 401, text: "send a bearer token, or a client certificate"},
	} {
		t.Run("it answers "+c.name, func(t *testing.T) {
			client := r.client(t, c.cfg)
			snapshot, _, err := client.Rollout(t.Context(), true, "")
			require.Equal(t, c.rollout, code(t, err), "%v", err)
			if c.rollout == http.StatusOK {
				assert.Len(t, snapshot.Objects, 2)
			} else {
				require.ErrorContains(t, err, c.text)
			}
			metrics, err := client.Metrics(t.Context())
			assert.Equal(t, c.metrics, code(t, err))
			assert.Equal(t, c.metrics == http.StatusOK, strings.Contains(string(metrics), "rest_client_requests_total"))
		})
	}
}

// code is the HTTP status that an error came with.
func code(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return http.StatusOK
	}
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status)
	return int(status.Status().Code)
}

func TestEndpointRejectsACertificateThatIsForServers(t *testing.T) {
	r := newReplica(t, Options{}).lead()
	other := newAuthority(t, "later trusted")
	certificate, key := other.issue(t, "vera", x509.ExtKeyUsageServerAuth)
	trustClientCA(t, other)
	server := r.client(t, &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: certificate, KeyData: key}})
	_, _, err := server.Rollout(t.Context(), false, "")
	assert.Equal(t, http.StatusUnauthorized, code(t, err))
}

// trustClientCA has the cluster publish one more client CA, as it does while its own is replaced. The API server that
// publishes it keeps what others have added.
func trustClientCA(t *testing.T, a issuer) {
	t.Helper()
	configMaps := kubernetes.NewForConfigOrDie(controlPlane.Config("test")).CoreV1().ConfigMaps(clientCANamespace)
	require.Eventually(t, func() bool {
		published, err := configMaps.Get(t.Context(), clientCAName, metav1.GetOptions{})
		if err != nil {
			return false
		}
		published.Data[clientCAKey] += string(a.Certificate)
		_, err = configMaps.Update(t.Context(), published, metav1.UpdateOptions{})
		return err == nil
	}, time.Minute, 20*time.Millisecond)
}

func TestEndpointFollowsTheClientCA(t *testing.T) {
	r := newReplica(t, Options{}).lead()
	next := newAuthority(t, "next")
	client := r.client(t, next.clientConfig(t, "newcomer"))
	_, _, err := client.Rollout(t.Context(), false, "")
	assert.Equal(t, http.StatusUnauthorized, code(t, err))

	trustClientCA(t, next)
	_, _, err = client.Rollout(t.Context(), false, "")
	assert.Equal(t, http.StatusUnauthorized, code(t, err), "it is not read for every caller")
	before := r.asked.Load()
	r.clock.SetTime(r.clock.Now().Add(clientCAEvery))
	_, _, err = client.Rollout(t.Context(), false, "")
	require.NoError(t, err, "it is read again after a while")
	assert.Equal(t, int64(2), r.asked.Load()-before, "the client CA, and the access")
}

func TestEndpointRemembersAnswersForAWhile(t *testing.T) {
	r := newReplica(t, Options{}).lead()
	client := r.client(t, &rest.Config{BearerToken: "garbage"})
	for range 3 {
		_, _, err := client.Rollout(t.Context(), false, "")
		require.True(t, apierrors.IsUnauthorized(err), "%v", err)
	}
	assert.Equal(t, int64(1), r.asked.Load(), "a token is reviewed once")
	r.clock.SetTime(r.clock.Now().Add(remembered + time.Second))
	_, _, err := client.Rollout(t.Context(), false, "")
	require.Error(t, err)
	assert.Equal(t, int64(2), r.asked.Load(), "and again later")

	admin := r.client(t, controlPlane.Config("test"))
	for range 3 {
		_, _, err := admin.Rollout(t.Context(), false, "")
		require.NoError(t, err)
	}
	assert.Equal(t, int64(4), r.asked.Load(), "the client CA is read once, an access reviewed once")
}

func TestEndpointForgetsRatherThanGrows(t *testing.T) {
	r := newReviews(newReplica(t, Options{}).clock)
	for i := range 3 * maxRemembered {
		r.cache.Add(i, true, time.Minute)
	}
	assert.Len(t, r.cache.Keys(), maxRemembered)
}

// An API server that is away is no reason to let somebody in, nor to say that they are unknown.
func TestEndpointLetsNobodyInUnchecked(t *testing.T) {
	r := newReplica(t, Options{}).lead()
	cfg := &rest.Config{Host: "https://127.0.0.1:1"}
	guard, err := newGuard(r.clock, cfg, &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })})
	require.NoError(t, err)
	handler := guard.protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("served") }))
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, RolloutPath, nil)
	req.Header.Set("Authorization", "bearer anything")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.NotContains(t, w.Body.String(), "127.0.0.1", "the insides are for the log")
}

func TestEndpointIsOpenForProbesAndClosedForPlainHTTP(t *testing.T) {
	r := newReplica(t, Options{})
	var protocol string
	stranger := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error { //nolint:gosec // a stranger
			protocol = s.NegotiatedProtocol
			return nil
		}},
	}}
	defer stranger.CloseIdleConnections()
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/": 404, "/progress": 404, RolloutPath: 401, MetricsPath: 401} {
		status, _ := get(t, stranger, r.url+path)
		assert.Equal(t, want, status, path)
	}
	assert.Equal(t, "http/1.1", protocol, "there are no streams to open and reset")
	status, body := get(t, stranger, "http://"+strings.TrimPrefix(r.url, "https://")+"/healthz")
	assert.Equal(t, http.StatusBadRequest, status)
	assert.Contains(t, body, "HTTPS server")

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/healthz", http.NoBody)
	require.NoError(t, err)
	req.Header.Set("X-Much", strings.Repeat("x", 2*maxHeaderBytes))
	resp, err := stranger.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
}

func get(t *testing.T, client *http.Client, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(data)
}

func TestEndpointTellsOnlyWhatTheLeaderKnows(t *testing.T) {
	r := newReplica(t, Options{})
	client := r.client(t, controlPlane.Config("test"))
	ask := func() error {
		_, _, err := client.Rollout(t.Context(), true, "")
		require.Error(t, err)
		assert.Equal(t, http.StatusServiceUnavailable, code(t, err))
		return err
	}
	err := ask()
	assert.Equal(t, ReasonNotLeader, apierrors.ReasonForError(err))
	require.ErrorContains(t, err, "who does could not be read")

	leader := Identity{Host: "other-pod", Unique: "5b5c5d5e-0000-4000-8000-000000000001", Fingerprint: fingerprintOf("other")}.String()
	seconds, now := int32(30), metav1.NowMicro()
	leases := kubernetes.NewForConfigOrDie(controlPlane.Config("test")).CoordinationV1().Leases("default")
	_, err = leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: r.election.LeaseMeta.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &leader, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.ErrorContains(t, ask(), "this replica does not lead; other-pod does")

	found, err := FindLeader(t.Context(), controlPlane.Config("test"), "default", r.election.LeaseMeta.Name)
	require.NoError(t, err)
	assert.Equal(t, leader, found.String())
	assert.False(t, found.Gone)

	close(r.elected)
	assert.Equal(t, ReasonNoRollout, apierrors.ReasonForError(ask()))
	_, err = client.Metrics(t.Context())
	require.NoError(t, err, "each replica has metrics")
}

func TestAccountIsSentWhenItChanges(t *testing.T) {
	r := newReplica(t, Options{}).lead()
	client := r.client(t, controlPlane.Config("test"))
	full, tag, err := client.Rollout(t.Context(), true, "")
	require.NoError(t, err)
	assert.Equal(t, r.told.Load(), full)

	later := *full
	later.At = full.At.Add(time.Minute)
	r.told.Store(&later)
	same, sameTag, err := client.Rollout(t.Context(), true, tag)
	require.NoError(t, err)
	assert.Nil(t, same, "time alone is no change")
	assert.Equal(t, tag, sameTag)

	short, shortTag, err := client.Rollout(t.Context(), false, tag)
	require.NoError(t, err)
	require.NotNil(t, short)
	assert.NotEqual(t, tag, shortTag)
	assert.Empty(t, short.Objects)
	assert.Equal(t, later.At, short.At)

	changed := later
	changed.Objects = append([]rollout.Object{}, later.Objects...)
	changed.Objects[1].State = rollout.StateSettled
	r.told.Store(&changed)
	next, _, err := client.Rollout(t.Context(), true, tag)
	require.NoError(t, err)
	require.NotNil(t, next)
	assert.Equal(t, rollout.StateSettled, next.Objects[1].State)

	resp, err := client.get(t.Context(), RolloutPath+"?objects=perhaps", "")
	if err == nil {
		_ = resp.Body.Close()
	}
	assert.Equal(t, http.StatusBadRequest, code(t, err))
}

// What is served is read by people and scripts as well: its names are part of what we promise.
func TestAccountAsJSON(t *testing.T) {
	r := newReplica(t, Options{}).lead()
	client := r.client(t, controlPlane.Config("test"))
	resp, err := client.get(t.Context(), RolloutPath, "")
	require.NoError(t, err)
	defer resp.Body.Close()
	var got map[string]any
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&got))
	assert.Equal(t, "2026-01-02T03:04:05Z", got["at"])
	assert.Equal(t, "1.1.0", got["progress"].(map[string]any)["release"].(map[string]any)["version"]) //nolint:forcetypeassert // a test
	object := got["objects"].([]any)[1].(map[string]any)                                              //nolint:forcetypeassert // a test
	assert.Equal(t, map[string]any{
		"group": "apps", "kind": "Deployment", "namespace": "dns", "name": "dns", "file": "", "runlevel": 10.0, "component": "dns", "state": "waiting",
	}, object)
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
}

func TestEndpointServesACertificateFromFiles(t *testing.T) {
	old, next := newAuthority(t, "old"), newAuthority(t, "next")
	dir := t.TempDir()
	certificate, key := old.issue(t, "server", x509.ExtKeyUsageServerAuth)
	certFile, keyFile := writePair(t, dir, certificate, key)
	r := newReplica(t, Options{ServingCertFile: certFile, ServingKeyFile: keyFile}).lead()
	ask := func(ca []byte) error {
		client, err := NewClient(controlPlane.Config("test"), r.url, Trust{CA: ca}, nil)
		require.NoError(t, err)
		defer client.Close()
		_, _, err = client.Rollout(t.Context(), false, "")
		return err
	}
	require.NoError(t, ask(old.Certificate))
	_, _, err := r.client(t, controlPlane.Config("test")).Rollout(t.Context(), false, "")
	require.NoError(t, err, "whoever knows the key that the Lease tells is served that one")
	require.ErrorContains(t, ask(next.Certificate), "certificate signed by unknown authority")

	certificate, key = next.issue(t, "server", x509.ExtKeyUsageServerAuth)
	writePair(t, dir, certificate, key)
	require.Eventually(t, func() bool { return ask(next.Certificate) == nil }, time.Minute, 20*time.Millisecond)
	require.Error(t, ask(old.Certificate))
}

func TestNewEndpointRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		text    string
	}{
		"it refuses a certificate without a key":   {Options{Listen: "127.0.0.1:0", ServingCertFile: "x"}, "needs both"},
		"it refuses files that are not there":      {Options{Listen: "127.0.0.1:0", ServingCertFile: "/x", ServingKeyFile: "/y"}, "reading the serving certificate"},
		"it refuses an address that it cannot use": {Options{Listen: "192.0.2.1:1"}, "listening for metrics and health"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newEndpoint(t.Context(), c.options)
			require.ErrorContains(t, err, c.text)
		})
	}
}

// Credentials are for the replica that leads and nobody else.
func TestClientShowsCredentialsToATrustedServerOnly(t *testing.T) {
	var shown, requests atomic.Int64
	impostor := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	impostor.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, VerifyConnection: func(s tls.ConnectionState) error { //nolint:gosec // an impostor
		shown.Add(int64(len(s.PeerCertificates)))
		return nil
	}}
	impostor.StartTLS()
	defer impostor.Close()
	cfg := controlPlane.Config("test")
	cfg.BearerToken = "secret"
	for name, trust := range map[string]Trust{
		"it compares the fingerprint": {Fingerprint: fingerprintOf("another")},
		"it verifies with the CA":     {CA: newAuthority(t, "another").Certificate},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := NewClient(cfg, impostor.URL, trust, nil)
			require.NoError(t, err)
			_, _, err = client.Rollout(t.Context(), false, "")
			require.Error(t, err)
			if trust.Fingerprint != "" {
				require.ErrorIs(t, err, ErrUntrusted)
			}
			assert.Zero(t, shown.Load(), "certificates shown")
			assert.Zero(t, requests.Load(), "requests sent")
		})
	}
	own := impostor.Certificate()
	client, err := NewClient(cfg, impostor.URL, Trust{Fingerprint: Fingerprint(own)}, nil)
	require.NoError(t, err)
	_, _, _ = client.Rollout(t.Context(), false, "")
	assert.Equal(t, int64(1), shown.Load(), "a certificate is shown to a server that is trusted")
	assert.Equal(t, int64(1), requests.Load())
}

func TestNewClientRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		server string
		trust  Trust
		text   string
	}{
		"it never speaks plain HTTP":         {"http://127.0.0.1:9099", Trust{Fingerprint: "x"}, "not a URL like https://"},
		"it wants a URL":                     {"127.0.0.1:9099", Trust{Fingerprint: "x"}, "not a URL like https://"},
		"it wants to know whom to trust":     {"https://127.0.0.1:9099", Trust{}, "nothing says which certificate to trust"},
		"it wants a CA that holds something": {"https://127.0.0.1:9099", Trust{CA: []byte("x")}, "holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewClient(&rest.Config{}, c.server, c.trust, nil)
			require.ErrorContains(t, err, c.text)
		})
	}
}

func TestClientDoesNotFollow(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer server.Close()
	client, err := NewClient(controlPlane.Config("test"), server.URL, Trust{Fingerprint: Fingerprint(server.Certificate())}, nil)
	require.NoError(t, err)
	_, _, err = client.Rollout(t.Context(), false, "")
	require.ErrorContains(t, err, "302 Found")
	assert.Zero(t, elsewhere.Load())
}

func TestParseIdentity(t *testing.T) {
	const unique = "5b5c5d5e-0000-4000-8000-000000000001"
	fingerprint := fingerprintOf("x")
	for _, c := range []struct {
		name, holder string
		want         Identity
	}{
		{"it reads host and certificate", "cvo-7d9f_" + unique + "_" + fingerprint, Identity{"cvo-7d9f", unique, fingerprint}},
		{"it reads what the original writes", "cvo-7d9f_" + unique, Identity{"cvo-7d9f", unique, ""}},
		{"it reads a host with underscores", "my_own_host_" + unique + "_" + fingerprint, Identity{"my_own_host", unique, fingerprint}},
		{"it takes no shorter fingerprint", "host_" + unique + "_abc", Identity{Host: "host_" + unique + "_abc"}},
		{"it takes anything else for a host", "somebody", Identity{Host: "somebody"}},
		{"it takes nothing for nobody", "", Identity{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ParseIdentity(c.holder)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.holder, got.String())
		})
	}
}

func TestNewIdentity(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	for pod, want := range map[string]string{"cvo-7d9f": "cvo-7d9f", "": host} {
		id, err := newIdentity(pod, nil)
		require.NoError(t, err)
		assert.Equal(t, want, id.Host)
		assert.Equal(t, id, ParseIdentity(id.String()))
	}
}

func FuzzParseIdentity(f *testing.F) {
	f.Add("cvo_5b5c5d5e-0000-4000-8000-000000000001_" + fingerprintOf("x"))
	f.Add("__")
	f.Fuzz(func(t *testing.T, holder string) {
		assert.Equal(t, holder, ParseIdentity(holder).String())
	})
}

func TestLeaderOf(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	renewed, seconds, holder, nobody := metav1.NewMicroTime(at), int32(30), "pod_5b5c5d5e-0000-4000-8000-000000000001", ""
	held := coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed, LeaseDurationSeconds: &seconds}
	stored := func(at time.Time, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Time: &metav1.Time{Time: at}, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	for _, c := range []struct {
		name   string
		spec   coordinationv1.LeaseSpec
		stored []metav1.ManagedFieldsEntry
		now    time.Time
		want   Leader
	}{
		{
			"it tells who leads", held, nil, at.Add(30 * time.Second),
			Leader{Identity: ParseIdentity(holder), RenewedAt: at, Silent: 30 * time.Second},
		},
		{
			"it tells who went silent", held, nil, at.Add(31 * time.Second),
			Leader{Identity: ParseIdentity(holder), RenewedAt: at, Silent: 31 * time.Second, Gone: true},
		},
		{
			"it does not believe the leader's clock",
			held,
			[]metav1.ManagedFieldsEntry{
				stored(at.Add(time.Hour), `{"f:spec":{"f:renewTime":{}}}`), stored(at.Add(2*time.Hour), `{"f:metadata":{"f:annotations":{}}}`),
			},
			at.Add(time.Hour + time.Second),
			Leader{Identity: ParseIdentity(holder), RenewedAt: at.Add(time.Hour), Silent: time.Second},
		},
		{
			"it tells of a Lease given back",
			coordinationv1.LeaseSpec{HolderIdentity: &nobody, RenewTime: &renewed, LeaseDurationSeconds: &seconds},
			nil, at,
			Leader{RenewedAt: at, Gone: true},
		},
		{"it stands an empty Lease", coordinationv1.LeaseSpec{}, nil, at, Leader{Gone: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ManagedFields: c.stored}, Spec: c.spec}
			assert.Equal(t, c.want, leaderOf(lease, c.now))
		})
	}
	found, err := FindLeader(t.Context(), controlPlane.Config("test"), "default", "never-held")
	require.NoError(t, err)
	assert.Equal(t, Leader{Gone: true}, found)
}

// TestFindLeaderByTheServersClock: the clocks of the leader and of the reader may be wrong, each in another way.
func TestFindLeaderByTheServersClock(t *testing.T) {
	cfg := controlPlane.Config("test")
	leases := kubernetes.NewForConfigOrDie(cfg).CoordinationV1().Leases("default")
	holder, seconds := "somewhere_5b5c5d5e-0000-4000-8000-000000000001", int32(60)
	for _, wrong := range []time.Duration{-time.Hour, time.Hour} {
		lease, err := leases.Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "clock-"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: time.Now().Add(wrong)},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		leader, err := FindLeader(t.Context(), cfg, "default", lease.Name)
		require.NoError(t, err)
		assert.False(t, leader.Gone, "a leader that is %s off", wrong)

		later := rest.CopyConfig(cfg)
		later.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				if err == nil {
					resp.Header.Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
				}
				return resp, err
			})
		})
		leader, err = FindLeader(t.Context(), later, "default", lease.Name)
		require.NoError(t, err)
		assert.True(t, leader.Gone, "the server says that an hour has passed")
		assert.Greater(t, leader.Silent, 59*time.Minute)
	}
}
