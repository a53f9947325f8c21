package endpoint

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"strings"
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

	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/operator/rolloutpage"
	testendpoint "github.com/cluster-version/cvo/test/endpoint"
	"github.com/cluster-version/cvo/test/fixture"
)

//threat:stranger-connects-operator
func TestEndpointAdmitsAuthorizedCallers(t *testing.T) {
	r := newReplica(t, Options{}).lead()
	admin := controlPlane.For(t).Config("test")
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
	grant(t, person("vera"), "vera", nil, rolloutpage.Path)
	grant(t, person("max"), "max", nil, serve.MetricsPath)
	grant(t, rbacv1.Subject{Kind: "ServiceAccount", Name: "seer", Namespace: "default"}, "system:serviceaccount:default:seer", nil, rolloutpage.Path)
	both := userNamed(t, "vera")
	both.BearerToken = "an invalid token"

	for _, c := range []struct {
		name    string
		cfg     *rest.Config
		rollout int
		metrics int
		text    string
	}{
		{name: "admits an administrator's certificate", cfg: admin, rollout: 200, metrics: 200},
		{
			name: "rejects a certificate of a user without a role", cfg: userNamed(t, "nobody"), rollout: 403, metrics: 403,
			text: `"nobody" may not get /debug/rollout: bind a ClusterRole with the rule {nonResourceURLs: ["/debug/rollout"], verbs: ["get"]}, such as cluster-version-operator-viewer`,
		},
		{name: "admits a user who may see the rollout", cfg: userNamed(t, "vera"), rollout: 200, metrics: 403},
		{name: "admits a user who may see the metrics", cfg: userNamed(t, "max"), rollout: 403, metrics: 200},
		{name: "admits a valid certificate with an invalid token to the rollout only", cfg: both, rollout: 200, metrics: 403},
		{name: "admits a service account with the role", cfg: serviceAccount(t, "seer"), rollout: 200, metrics: 403},
		{
			name: "rejects a service account without the role", cfg: serviceAccount(t, "blind"), rollout: 403, metrics: 403,
			text: `"system:serviceaccount:default:blind" may not get /debug/rollout`,
		},
		{
			name: "rejects an invalid token", cfg: &rest.Config{BearerToken: "garbage"}, rollout: 401, metrics: 401,
			text: "the API server does not accept the bearer token",
		},
		{
			name: "rejects a certificate of another authority", cfg: fixture.NewIssuer(t, "other").ClientConfig(t, "vera"), rollout: 401, metrics: 401,
			text: "the client certificate is not signed by the cluster's client CA",
		},
		{name: "rejects a request without credentials", cfg: &rest.Config{}, rollout: 401, metrics: 401, text: "send a bearer token, or a client certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := r.client(t, c.cfg)
			snapshot, _, err := rolloutpage.Read(t.Context(), client, true, "")
			require.Equal(t, c.rollout, code(t, err), "%v", err)
			if c.rollout == http.StatusOK {
				assert.Len(t, snapshot.Objects, 2)
			} else {
				require.ErrorContains(t, err, c.text)
			}
			metrics, err := testendpoint.Metrics(t.Context(), client)
			assert.Equal(t, c.metrics, code(t, err))
			assert.Equal(t, c.metrics == http.StatusOK, strings.Contains(string(metrics), "rest_client_requests_total"))
		})
	}
}

// code returns the HTTP status in an error.
func code(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return http.StatusOK
	}
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status)
	return int(status.Status().Code)
}

//threat:stranger-connects-operator
func TestEndpointAnswersProbesAndRejectsPlainHTTP(t *testing.T) {
	r := newReplica(t, Options{})
	var protocol string
	stranger := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error { // a client without the CA
			protocol = s.NegotiatedProtocol
			return nil
		}},
	}}
	defer stranger.CloseIdleConnections()
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/": 404, "/progress": 404, rolloutpage.Path: 401, serve.MetricsPath: 401} {
		status, _ := get(t, stranger, r.url+path)
		assert.Equal(t, want, status, path)
	}
	assert.Equal(t, "http/1.1", protocol, "HTTP/1.1 has no streams to open and reset")
	status, body := get(t, stranger, "http://"+strings.TrimPrefix(r.url, "https://")+"/healthz")
	assert.Equal(t, http.StatusBadRequest, status)
	assert.Contains(t, body, "HTTPS server")

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/healthz", http.NoBody)
	require.NoError(t, err)
	req.Header.Set("X-Much", strings.Repeat("x", 128<<10))
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

func TestFollowerServesNoRollout(t *testing.T) {
	r := newReplica(t, Options{})
	client := r.client(t, controlPlane.For(t).Config("test"))
	ask := func() error {
		_, _, err := rolloutpage.Read(t.Context(), client, true, "")
		require.Error(t, err)
		assert.Equal(t, http.StatusServiceUnavailable, code(t, err))
		return err
	}
	err := ask()
	assert.Equal(t, rolloutpage.ReasonNotLeader, apierrors.ReasonForError(err))
	require.ErrorContains(t, err, "cannot read which replica leads")

	holder := leader.Identity{Host: "other-pod", Unique: "5b5c5d5e-0000-4000-8000-000000000001", Fingerprint: strings.Repeat("x", 43)}.String()
	seconds, now := int32(30), metav1.NowMicro()
	leases := kubernetes.NewForConfigOrDie(controlPlane.For(t).Config("test")).CoordinationV1().Leases("default")
	_, err = leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: r.name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.ErrorContains(t, ask(), "this replica does not lead; the leader is other-pod")

	found, err := leader.Find(t.Context(), controlPlane.For(t).Config("test"), "default", r.name)
	require.NoError(t, err)
	assert.Equal(t, holder, found.String())
	assert.False(t, found.Gone)

	close(r.elected)
	assert.Equal(t, rolloutpage.ReasonNoRollout, apierrors.ReasonForError(ask()))
	_, err = testendpoint.Metrics(t.Context(), client)
	require.NoError(t, err, "each replica serves metrics")
}

func TestAccountIsSentWhenItChanges(t *testing.T) {
	r := newReplica(t, Options{}).lead()
	client := r.client(t, controlPlane.For(t).Config("test"))
	full, tag, err := rolloutpage.Read(t.Context(), client, true, "")
	require.NoError(t, err)
	assert.Equal(t, r.snapshot.Load(), full)

	later := *full
	later.At = full.At.Add(time.Minute)
	r.snapshot.Store(&later)
	same, sameTag, err := rolloutpage.Read(t.Context(), client, true, tag)
	require.NoError(t, err)
	assert.Nil(t, same, "a later time alone is not a change")
	assert.Equal(t, tag, sameTag)

	short, shortTag, err := rolloutpage.Read(t.Context(), client, false, tag)
	require.NoError(t, err)
	require.NotNil(t, short)
	assert.NotEqual(t, tag, shortTag)
	assert.Empty(t, short.Objects)
	assert.Equal(t, later.At, short.At)

	changed := later
	changed.Objects = append([]report.Object{}, later.Objects...)
	changed.Objects[1].State = report.StateSettled
	r.snapshot.Store(&changed)
	next, _, err := rolloutpage.Read(t.Context(), client, true, tag)
	require.NoError(t, err)
	require.NotNil(t, next)
	assert.Equal(t, report.StateSettled, next.Objects[1].State)

	resp, err := client.Get(t.Context(), rolloutpage.Path+"?objects=perhaps", "")
	if err == nil {
		_ = resp.Body.Close()
	}
	assert.Equal(t, http.StatusBadRequest, code(t, err))
}

// TestAccountKeepsItsJSONNames checks the names in the output, because people and scripts depend on them.
func TestAccountKeepsItsJSONNames(t *testing.T) {
	r := newReplica(t, Options{}).lead()
	client := r.client(t, controlPlane.For(t).Config("test"))
	resp, err := client.Get(t.Context(), rolloutpage.Path, "")
	require.NoError(t, err)
	defer resp.Body.Close()
	var got map[string]any
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&got))
	assert.Equal(t, "2026-01-02T03:04:05Z", got["at"])
	assert.Equal(t, "1.1.0", got["progress"].(map[string]any)["release"].(map[string]any)["version"])
	object := got["objects"].([]any)[1].(map[string]any)
	assert.Equal(t, map[string]any{
		"group": "apps", "kind": "Deployment", "namespace": "dns", "name": "dns", "file": "", "runlevel": 10.0, "component": "dns", "state": "waiting",
	}, object)
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
}
