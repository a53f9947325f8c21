package source_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/update/metrics/source"
	"github.com/cluster-version/cvo/pkg/update/risk"
	"github.com/cluster-version/cvo/test/fixture"
)

func prometheusAt(t testing.TB, options source.PrometheusOptions) *source.Prometheus {
	t.Helper()
	p, err := source.NewPrometheus(options)
	require.NoError(t, err)
	return p
}

//threat:prometheus-hangs-fails
func TestPrometheusAnswersAreParsed(t *testing.T) {
	server := fixture.StartQueryAPI(t)
	success := func(kind, result string) string {
		return fmt.Sprintf(`{"status":"success","data":{"resultType":%q,"result":%s}}`, kind, result)
	}
	for _, tc := range []struct {
		name, body string
		values     []float64
		err        string
		down       bool
	}{
		{"one sample", success("vector", `[{"metric":{"a":"b"},"value":[1,"1"]}]`), []float64{1}, "", false},
		{"two samples", success("vector", `[{"metric":{},"value":[1,"0"]},{"metric":{"a":""},"value":[1,"1"]}]`), []float64{0, 1}, "", false},
		{"no sample", success("vector", `[]`), []float64{}, "", false},
		{"a warning", strings.TrimSuffix(success("vector", `[{"metric":{},"value":[1,"1"]}]`), "}") + `,"warnings":["w"]}`, []float64{1}, "", false},
		{"a number", success("scalar", `[1,"1"]`), nil, "the result of the query is a scalar, not a vector", false},
		{"a string", success("string", `[1,"1"]`), nil, `unexpected value type "string"`, false},
		{"a matrix", success("matrix", `[]`), nil, "the result of the query is a matrix, not a vector", false},
		{"a histogram", success("vector", `[{"metric":{},"histogram":[1,{"count":"1","sum":"1","buckets":[]}]}]`), nil, "the result of the query is a histogram, not a number", false},
		{"another type", success("tensor", `[]`), nil, `unknown value type "tensor"`, false},
		{"nothing", `{}`, nil, "the result of the query is nothing, not a vector", false},
		{"an empty body", ``, nil, "unexpected end of JSON input", false},
		{"a page", `<html>`, nil, "invalid character '<'", false},
		{"null", success("vector", `[null]`), nil, "the result of the query is a histogram, not a number", false},
		{"an invalid value", success("vector", `[{"metric":{},"value":[1,"x"]}]`), nil, `strconv.ParseFloat: parsing "x"`, false},
		{"an error", `{"status":"error","errorType":"execution","error":"too many samples"}`, nil, "execution: too many samples", false},
	} {
		t.Run("it handles "+tc.name, func(t *testing.T) {
			server.AnswerText(tc.name, tc.body)
			values, err := prometheusAt(t, source.PrometheusOptions{URL: server.URL()}).Query(t.Context(), tc.name)
			if tc.err == "" {
				require.NoError(t, err)
				assert.Equal(t, tc.values, values)
				return
			}
			require.ErrorContains(t, err, tc.err)
			assert.Equal(t, tc.down, isUnreachable(err), "%v", err)
		})
	}
	for _, request := range server.Requests() {
		assert.Equal(t, http.MethodGet, request.Method)
	}
	server.Answer("NaN", 1)
	server.AnswerText("NaN", success("vector", `[{"metric":{},"value":[1,"NaN"]}]`))
	e := risk.New(clock.RealClock{}, prometheusAt(t, source.PrometheusOptions{URL: server.URL()}), risk.Options{})
	got := e.Evaluate(t.Context(), []configv1.ConditionalUpdateRisk{ruled("A", query("NaN"))})
	assert.Contains(t, got.Applies["A"].Message, "(the result of the query is NaN instead of 0 or 1)")
}

// TestPartialAnswersAreRefused queries a Thanos Querier that does not reach one of its stores. By default it answers from the other stores,
// with a warning.
//
//threat:risk-counts-applying
func TestPartialAnswersAreRefused(t *testing.T) {
	const failure = "fetch series for prometheus-k8s-0: connection refused"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		assert.Equal(t, "b", req.FormValue("a"), "the query of the URL is kept")
		if req.FormValue("partial_response") == "false" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprintf(w, `{"status":"error","errorType":"execution","error":%q}`, failure)
			return
		}
		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"0"]}]},"warnings":[%q]}`, failure)
	}))
	defer server.Close()
	_, err := prometheusAt(t, source.PrometheusOptions{URL: server.URL + "/?a=b"}).Query(t.Context(), `group(broken) or 0 * group(up)`)
	require.ErrorContains(t, err, "execution: "+failure)
	assert.False(t, isUnreachable(err), "the server answers other queries")
}

// ruled returns a risk with rules, query one that matches by an expression.
func ruled(name string, rules ...configv1.ClusterCondition) configv1.ConditionalUpdateRisk {
	return configv1.ConditionalUpdateRisk{Name: name, Message: "m", URL: "https://example.com/" + name, MatchingRules: rules}
}

func query(expression string) configv1.ClusterCondition {
	return configv1.ClusterCondition{Type: "PromQL", PromQL: &configv1.PromQLClusterCondition{PromQL: expression}}
}

func isUnreachable(err error) bool {
	return assert.ErrorIs(new(testing.T), err, risk.ErrUnreachable)
}

// TestPrometheusFailuresHaveStableTexts checks that the error text for a failing server is stable.
//
//threat:token-cluster-prometheus explains a server that is not running
//threat:prometheus-hangs-fails
func TestPrometheusFailuresHaveStableTexts(t *testing.T) {
	endless := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"vector","result":[`))
		for range 10_000 {
			if _, err := w.Write(bytes.Repeat([]byte(" "), 4096)); err != nil {
				return
			}
		}
	}
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	hang := func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }
	halfway := func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, `{"status":`)
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	}
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		err    string
		down   bool
	}{
		{"hangs", hang, "querying Prometheus at HOST: no response in time", true},
		{"hangs halfway", halfway, "querying Prometheus at HOST: no response in time", true},
		{"breaks the connection", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "querying Prometheus at HOST: EOF", true},
		{"fails", status(500, "oops\n\x1b[31m"), "querying Prometheus at HOST: server error: 500: oops [31m", false},
		{"fails with a long message", status(500, strings.Repeat("long ", 1000)), "querying Prometheus at HOST: server error: 500: long", false},
		{"is overloaded", status(503, `{"status":"error","errorType":"timeout","error":"query timed out"}`), "querying Prometheus at HOST: the query takes too long", false},
		{"rejects the token", status(401, "Unauthorized"), "client error: 401: Unauthorized (grant the operator's service account permission to read metrics)", true},
		{"forbids the request", status(403, "no"), "(grant the operator's service account permission to read metrics)", true},
		{"is not a Prometheus", status(404, "404 page not found"), "querying Prometheus at HOST: client error: 404: 404 page not found", true},
		{"rejects the query", status(400, `{"status":"error","errorType":"bad_data","error":"parse error"}`), "querying Prometheus at HOST: bad_data: parse error", false},
		{"cannot evaluate the query", status(422, `{"status":"error","errorType":"execution","error":"many-to-many"}`), "querying Prometheus at HOST: execution: many-to-many", false},
		{"sends an endless response", endless, "querying Prometheus at HOST: the response has more than 1048576 bytes", false},
		{"responds with a long list", status(200, `{"status":"success","data":{"resultType":"vector","result":[`+strings.Repeat("{},", 120_000)+`{}]}}`), "querying Prometheus at HOST: the response is a list with more than 100000 entries", false},
	} {
		t.Run("it explains a server that "+tc.name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(tc.answer)
			server.Start()
			defer server.Close()
			defer server.CloseClientConnections()
			p := prometheusAt(t, source.PrometheusOptions{URL: server.URL})
			var texts []string
			for range 2 {
				ctx := t.Context()
				if strings.HasPrefix(tc.name, "hangs") {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
					defer cancel()
				}
				_, err := p.Query(ctx, "up")
				require.ErrorContains(t, err, strings.ReplaceAll(tc.err, "HOST", strings.TrimPrefix(server.URL, "http://")))
				assert.Equal(t, tc.down, isUnreachable(err))
				assert.Less(t, len(err.Error()), 1000)
				if ctx.Err() != nil {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				if tc.name == "rejects the query" || tc.name == "forbids the request" {
					var said *promv1.Error
					require.ErrorAs(t, err, &said)
				}
				texts = append(texts, err.Error())
			}
			assert.Equal(t, texts[0], texts[1])
		})
	}
	t.Run("explains a server that is not running", func(t *testing.T) {
		server := httptest.NewServer(http.NotFoundHandler())
		server.Close()
		_, err := prometheusAt(t, source.PrometheusOptions{URL: server.URL}).Query(t.Context(), "up")
		require.ErrorContains(t, err, "connection refused")
		assert.NotContains(t, err.Error(), "query=")
		assert.True(t, isUnreachable(err))
	})
}

// TestPrometheusRedirectsAreNotFollowed checks that the token is sent only to the configured server.
//
//threat:token-cluster-prometheus
func TestPrometheusRedirectsAreNotFollowed(t *testing.T) {
	var stolen atomic.Int64
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	defer thief.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		assert.Equal(t, "Bearer secret", req.Header.Get("Authorization"))
		http.Redirect(w, req, thief.URL+"/api/v1/query", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	p := prometheusAt(t, source.PrometheusOptions{URL: server.URL, TokenFile: file(t, "secret\n")})
	_, err := p.Query(t.Context(), "up")
	require.ErrorContains(t, err, "refusing a redirect to "+strings.TrimPrefix(thief.URL, "http://"))
	assert.NotContains(t, err.Error(), "secret")
	assert.Zero(t, stolen.Load())
}

func file(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// TestPrometheusNeedsACertificateForItsName connects to a server at its service's address, and expects a certificate for the server's
// name.
//
//threat:another-server-poses-cluster rejects an unknown CA
//threat:another-server-poses-cluster rejects a certificate for another name
func TestPrometheusNeedsACertificateForItsName(t *testing.T) {
	handler := fixture.StartQueryAPI(t)
	handler.Answer("up", 1)
	var connections atomic.Int64
	var tokens []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		tokens = append(tokens, req.Header.Get("Authorization"))
		handler.ServeHTTP(w, req)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	at, err := url.Parse(server.URL)
	require.NoError(t, err)
	named := "https://example.com:" + at.Port() // the certificate of httptest is for this name
	loopback := func(context.Context) (string, error) { return at.Hostname(), nil }
	ca, token := file(t, authority), file(t, "first\n")

	p := prometheusAt(t, source.PrometheusOptions{URL: named, CAFile: ca, TokenFile: token, Address: loopback})
	for _, secret := range []string{"first", "first", "second"} {
		require.NoError(t, os.WriteFile(token, []byte(secret+"\n"), 0o600))
		values, err := p.Query(t.Context(), "up")
		require.NoError(t, err)
		assert.Equal(t, []float64{1}, values)
	}
	assert.Equal(t, []string{"Bearer first", "Bearer first", "Bearer second"}, tokens)
	assert.Equal(t, int64(1), connections.Load(), "connections are reused")

	for _, tc := range []struct {
		name    string
		options source.PrometheusOptions
		err     string
	}{
		{"rejects an unknown CA", source.PrometheusOptions{URL: named, Address: loopback}, "certificate signed by unknown authority"},
		{"rejects a certificate for another name", source.PrometheusOptions{URL: "https://prometheus.test:" + at.Port(), CAFile: ca, Address: loopback}, "not prometheus.test"},
		{"reports a missing CA file", source.PrometheusOptions{URL: named, CAFile: ca + ".gone", Address: loopback}, "reading the CA certificates for Prometheus: open " + ca + ".gone: no such file or directory"},
		{"reports a CA file without certificates", source.PrometheusOptions{URL: named, CAFile: file(t, "none"), Address: loopback}, "no certificate in "},
		{"reports an empty token file", source.PrometheusOptions{URL: named, CAFile: ca, TokenFile: file(t, " \n"), Address: loopback}, "reading the token for Prometheus: no valid token in "},
		{"reports an invalid token", source.PrometheusOptions{URL: named, CAFile: ca, TokenFile: file(t, "a\nb"), Address: loopback}, "reading the token for Prometheus: no valid token in "},
		{"limits the size of the token", source.PrometheusOptions{URL: named, CAFile: ca, TokenFile: file(t, strings.Repeat("x", 70<<10)), Address: loopback}, "more than 65536 bytes"},
		{"reports a missing Prometheus", source.PrometheusOptions{URL: named, Address: func(context.Context) (string, error) { return "", risk.ErrNoPrometheus }}, "no Prometheus is available"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := prometheusAt(t, tc.options).Query(t.Context(), "up")
			require.ErrorContains(t, err, tc.err)
			assert.True(t, isUnreachable(err))
		})
	}

	// The same CA certificates, in a file that is replaced while the operator runs.
	require.NoError(t, os.WriteFile(ca, []byte("none"), 0o600))
	p = prometheusAt(t, source.PrometheusOptions{URL: named, CAFile: ca, Address: loopback})
	_, err = p.Query(t.Context(), "up")
	require.Error(t, err)
	require.NoError(t, os.WriteFile(ca, []byte(authority), 0o600))
	_, err = p.Query(t.Context(), "up")
	require.NoError(t, err)
}

//threat:token-cluster-prometheus
func TestNewPrometheusRejectsInvalidAddresses(t *testing.T) {
	for _, address := range []string{"", "prometheus:9090", "ftp://prometheus", "https://", "http://%zz"} {
		_, err := source.NewPrometheus(source.PrometheusOptions{URL: address})
		require.ErrorContains(t, err, "use https://host:port", address)
	}
	_, err := source.NewPrometheus(source.PrometheusOptions{URL: "http://user:pass@prometheus", TokenFile: "token"})
	require.EqualError(t, err, "a token must not be sent to http://user:xxxxx@prometheus without TLS: use https or no token")
}

// TestRealPrometheusAnswers queries a real server.
func TestRealPrometheusAnswers(t *testing.T) {
	address := fixture.RunPrometheus(t, `
groups:
- name: all
  rules:
  - {record: cluster_operator_up, labels: {name: dns}, expr: vector(1)}
  - {record: cluster_operator_up, labels: {name: etcd}, expr: vector(0)}
  - alert: EtcdDown
    expr: cluster_operator_up{name="etcd"} == 0
    labels: {severity: critical}
    annotations: {summary: "{{ $labels.name }} is down", description: Nothing works, runbook_url: "https://example.com/etcd"}
  - alert: Patience
    expr: cluster_operator_up{name="etcd"} == 0
    for: 1h
    labels: {severity: critical}
`, `ALERTS{alertname="EtcdDown",alertstate="firing"}`)
	e := risk.New(clock.RealClock{}, prometheusAt(t, source.PrometheusOptions{URL: address}), risk.Options{})
	got := e.Evaluate(t.Context(), []configv1.ConditionalUpdateRisk{
		ruled("Yes", query(`cluster_operator_up{name="dns"}`)), ruled("No", query(`cluster_operator_up{name="etcd"}`)),
		ruled("Two", query("cluster_operator_up")), ruled("None", query(`cluster_operator_up offset 1d`)), ruled("Broken", query("max(")),
		ruled("Second", query("max("), query(`cluster_operator_up{name="dns"}`)),
	})
	for name, status := range map[string]metav1.ConditionStatus{"Yes": "True", "No": "False", "Two": "Unknown", "None": "Unknown", "Broken": "Unknown", "Second": "True"} {
		assert.Equal(t, status, got.Applies[name].Status, "%s: %s", name, got.Applies[name].Message)
	}
	assert.Contains(t, got.Applies["Two"].Message, "(the query has 2 results instead of one)")
	assert.Contains(t, got.Applies["Broken"].Message, ": bad_data: ")

	alerts, err := e.Alerts(t.Context())
	require.NoError(t, err)
	require.Len(t, alerts, 1)
	assert.Equal(t, "EtcdDown", alerts[0].Name)
	assert.Equal(t, "critical alert EtcdDown firing, suggesting significant cluster issues worth investigating. etcd is down. The alert description is: Nothing works", alerts[0].Message)
	assert.Equal(t, "https://example.com/etcd", alerts[0].URL)
}

// FuzzQueryAnswer parses responses of an untrusted server.
//
//threat:answers-prometheus-alerts
func FuzzQueryAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1,"1"]}]}}`,
		`{"status":"success","data":{"resultType":"scalar","result":[1,"NaN"]}}`, `{"status":"error","errorType":"timeout","error":"x"}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"histogram":[1,{"count":"1","buckets":[[0,"1","2","3"]]}]}]}}`,
		`{"status":"success","data":{"alerts":[{"labels":{"alertname":"A","severity":"critical"},"annotations":{"summary":"s"},"state":"firing","activeAt":"2026-01-01T00:00:00Z","value":"1"}]}}`,
		`{"data":null}`, `[]`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		defer server.Close()
		e := risk.New(clock.RealClock{}, prometheusAt(t, source.PrometheusOptions{URL: server.URL}), risk.Options{})
		got := e.Evaluate(t.Context(), []configv1.ConditionalUpdateRisk{ruled("A", query("up"))})
		assert.NotEmpty(t, got.Applies["A"].Message)
		alerts, _ := e.Alerts(t.Context())
		for _, alert := range alerts {
			assert.Regexp(t, `^[A-Z][A-Za-z0-9.-]*$`, alert.Name)
		}
		_, err := json.Marshal(alerts)
		assert.NoError(t, err)
	})
}
