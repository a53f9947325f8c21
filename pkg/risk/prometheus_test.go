package risk_test

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
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/risk"
	"github.com/cluster-version/cvo/test/fixture"
)

func prometheusAt(t testing.TB, options risk.PrometheusOptions) *risk.Prometheus {
	t.Helper()
	p, err := risk.NewPrometheus(options)
	require.NoError(t, err)
	return p
}

func TestPrometheusAnswers(t *testing.T) {
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
		{"a value that is none", success("vector", `[{"metric":{},"value":[1,"x"]}]`), nil, `strconv.ParseFloat: parsing "x"`, false},
		{"an error", `{"status":"error","errorType":"execution","error":"too many samples"}`, nil, "execution: too many samples", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server.AnswerText(tc.name, tc.body)
			values, err := prometheusAt(t, risk.PrometheusOptions{URL: server.URL()}).Query(t.Context(), tc.name)
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
	e := risk.New(clock.RealClock{}, prometheusAt(t, risk.PrometheusOptions{URL: server.URL()}), risk.Options{})
	got := e.Evaluate(t.Context(), []configv1.ConditionalUpdateRisk{ruled("A", query("NaN"))})
	assert.Contains(t, got.Applies["A"].Message, "(the result of the query is NaN, neither 0 nor 1)")
}

func isUnreachable(err error) bool {
	return assert.ErrorIs(new(testing.T), err, risk.ErrUnreachable)
}

// TestPrometheusMisbehaves has a server that fails: the words for that are the same each time.
func TestPrometheusMisbehaves(t *testing.T) {
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
		{"hangs", hang, "asking Prometheus at HOST: no answer in time", true},
		{"hangs halfway", halfway, "asking Prometheus at HOST: no answer in time", true},
		{"breaks the connection", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "asking Prometheus at HOST: EOF", true},
		{"fails", status(500, "oops\n\x1b[31m"), "asking Prometheus at HOST: server error: 500: oops [31m", false},
		{"fails with a long story", status(500, strings.Repeat("long ", 1000)), "asking Prometheus at HOST: server error: 500: long", false},
		{"is overloaded", status(503, `{"status":"error","errorType":"timeout","error":"query timed out"}`), "asking Prometheus at HOST: the query takes too long", false},
		{"refuses the token", status(401, "Unauthorized"), "client error: 401: Unauthorized (grant the operator's service account the right to read metrics)", true},
		{"forbids", status(403, "no"), "(grant the operator's service account the right to read metrics)", true},
		{"is another server", status(404, "404 page not found"), "asking Prometheus at HOST: client error: 404: 404 page not found", true},
		{"refuses the query", status(400, `{"status":"error","errorType":"bad_data","error":"parse error"}`), "asking Prometheus at HOST: bad_data: parse error", false},
		{"cannot evaluate the query", status(422, `{"status":"error","errorType":"execution","error":"many-to-many"}`), "asking Prometheus at HOST: execution: many-to-many", false},
		{"answers without end", endless, "asking Prometheus at HOST: the answer has more than 1048576 bytes", false},
		{"answers with a list of nothings", status(200, `{"status":"success","data":{"resultType":"vector","result":[`+strings.Repeat("{},", 120_000)+`{}]}}`), "asking Prometheus at HOST: the answer is a list of more than 100000 things", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(tc.answer)
			server.Start()
			defer server.Close()
			defer server.CloseClientConnections()
			p := prometheusAt(t, risk.PrometheusOptions{URL: server.URL})
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
				if tc.name == "refuses the query" || tc.name == "forbids" {
					var said *promv1.Error
					require.ErrorAs(t, err, &said)
				}
				texts = append(texts, err.Error())
			}
			assert.Equal(t, texts[0], texts[1])
		})
	}
	t.Run("is not there", func(t *testing.T) {
		server := httptest.NewServer(http.NotFoundHandler())
		server.Close()
		_, err := prometheusAt(t, risk.PrometheusOptions{URL: server.URL}).Query(t.Context(), "up")
		require.ErrorContains(t, err, "connection refused")
		assert.NotContains(t, err.Error(), "query=")
		assert.True(t, isUnreachable(err))
	})
}

// TestPrometheusRedirects has the token stay where it belongs.
func TestPrometheusRedirects(t *testing.T) {
	var stolen atomic.Int64
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	defer thief.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		assert.Equal(t, "Bearer secret", req.Header.Get("Authorization"))
		http.Redirect(w, req, thief.URL+"/api/v1/query", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	p := prometheusAt(t, risk.PrometheusOptions{URL: server.URL, TokenFile: file(t, "secret\n")})
	_, err := p.Query(t.Context(), "up")
	require.ErrorContains(t, err, "it redirects to "+strings.TrimPrefix(thief.URL, "http://")+", which is not followed")
	assert.NotContains(t, err.Error(), "secret")
	assert.Zero(t, stolen.Load())
}

func file(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// TestPrometheusOverTLS reaches a server by the address of its service and expects the certificate of its name.
func TestPrometheusOverTLS(t *testing.T) {
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

	p := prometheusAt(t, risk.PrometheusOptions{URL: named, CAFile: ca, TokenFile: token, Address: loopback})
	for _, secret := range []string{"first", "first", "second"} {
		require.NoError(t, os.WriteFile(token, []byte(secret+"\n"), 0o600))
		values, err := p.Query(t.Context(), "up")
		require.NoError(t, err)
		assert.Equal(t, []float64{1}, values)
	}
	assert.Equal(t, []string{"Bearer first", "Bearer first", "Bearer second"}, tokens)
	assert.Equal(t, int64(1), connections.Load(), "connections are used again")

	for _, tc := range []struct {
		name    string
		options risk.PrometheusOptions
		err     string
	}{
		{"an authority that nobody knows", risk.PrometheusOptions{URL: named, Address: loopback}, "certificate signed by unknown authority"},
		{"another name", risk.PrometheusOptions{URL: "https://prometheus.test:" + at.Port(), CAFile: ca, Address: loopback}, "not prometheus.test"},
		{"no file of authorities", risk.PrometheusOptions{URL: named, CAFile: ca + ".gone", Address: loopback}, "reading the authorities for Prometheus: open " + ca + ".gone: no such file or directory"},
		{"a file without authorities", risk.PrometheusOptions{URL: named, CAFile: file(t, "none"), Address: loopback}, "there is no certificate in "},
		{"no token", risk.PrometheusOptions{URL: named, CAFile: ca, TokenFile: file(t, " \n"), Address: loopback}, "reading the token for Prometheus: there is none in "},
		{"a token that is none", risk.PrometheusOptions{URL: named, CAFile: ca, TokenFile: file(t, "a\nb"), Address: loopback}, "reading the token for Prometheus: there is none in "},
		{"an endless token", risk.PrometheusOptions{URL: named, CAFile: ca, TokenFile: file(t, strings.Repeat("x", 70<<10)), Address: loopback}, "it has more than 65536 bytes"},
		{"no service", risk.PrometheusOptions{URL: named, Address: func(context.Context) (string, error) { return "", risk.ErrNoPrometheus }}, "there is no Prometheus to ask"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := prometheusAt(t, tc.options).Query(t.Context(), "up")
			require.ErrorContains(t, err, tc.err)
			assert.True(t, isUnreachable(err))
		})
	}

	// The same authorities in a file that is replaced while the operator runs.
	require.NoError(t, os.WriteFile(ca, []byte("none"), 0o600))
	p = prometheusAt(t, risk.PrometheusOptions{URL: named, CAFile: ca, Address: loopback})
	_, err = p.Query(t.Context(), "up")
	require.Error(t, err)
	require.NoError(t, os.WriteFile(ca, []byte(authority), 0o600))
	_, err = p.Query(t.Context(), "up")
	require.NoError(t, err)
}

func TestNewPrometheusRefuses(t *testing.T) {
	for _, address := range []string{"", "prometheus:9090", "ftp://prometheus", "https://", "http://%zz"} {
		_, err := risk.NewPrometheus(risk.PrometheusOptions{URL: address})
		require.ErrorContains(t, err, "give it as https://host:port", address)
	}
	_, err := risk.NewPrometheus(risk.PrometheusOptions{URL: "http://user:pass@prometheus", TokenFile: "token"})
	require.EqualError(t, err, "a token must not be sent to http://user:xxxxx@prometheus in the clear: use https, or no token")
}

// TestOrLocal falls back on the operator's own metrics where there is no Prometheus, and nowhere else.
func TestOrLocal(t *testing.T) {
	local := risk.NewLocal(clock.RealClock{}, operatorMetrics(t), nil)
	server := fixture.StartQueryAPI(t)
	at, err := url.Parse(server.URL())
	require.NoError(t, err)
	var where error
	p := prometheusAt(t, risk.PrometheusOptions{URL: server.URL(), Address: func(context.Context) (string, error) { return at.Hostname(), where }})
	server.AddFault(fixture.Fault{Status: http.StatusInternalServerError})
	_, err = risk.OrLocal(p, local).Query(t.Context(), `cluster_operator_up{name="dns"}`)
	require.ErrorContains(t, err, "server error: 500")
	_, err = risk.OrLocal(p, local).Alerts(t.Context())
	require.ErrorContains(t, err, "server error: 500")

	where = risk.ErrNoPrometheus
	p = prometheusAt(t, risk.PrometheusOptions{URL: server.URL(), Address: func(context.Context) (string, error) { return at.Hostname(), where }})
	values, err := risk.OrLocal(p, local).Query(t.Context(), `cluster_operator_up{name="dns"}`)
	require.NoError(t, err)
	assert.Equal(t, []float64{1}, values)
	_, err = risk.OrLocal(p, local).Query(t.Context(), "up")
	require.EqualError(t, err, "there is no Prometheus, and the operator itself does not know the metrics up")
	_, err = risk.OrLocal(p, local).Alerts(t.Context())
	require.NoError(t, err)
}

// TestRealPrometheus asks a real server, where one is installed.
func TestRealPrometheus(t *testing.T) {
	var address string
	if fixture.HasPrometheus() {
		address = fixture.RunPrometheus(t, `
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
	} else {
		server := fixture.StartQueryAPI(t)
		server.Answer(`cluster_operator_up{name="dns"}`, 1)
		server.Answer(`cluster_operator_up{name="etcd"}`, 0)
		server.Answer(`cluster_operator_up`, 1, 0)
		server.Answer(`cluster_operator_up offset 1d`)
		server.Alert(promv1.Alert{
			State: promv1.AlertStateFiring, Labels: model.LabelSet{"alertname": "EtcdDown", "severity": "critical"},
			Annotations: model.LabelSet{"summary": "etcd is down", "description": "Nothing works", "runbook_url": "https://example.com/etcd"},
		}, promv1.Alert{State: promv1.AlertStatePending, Labels: model.LabelSet{"alertname": "Patience", "severity": "critical"}})
		address = server.URL()
	}
	e := risk.New(clock.RealClock{}, prometheusAt(t, risk.PrometheusOptions{URL: address}), risk.Options{})
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

// FuzzQueryAnswer reads answers of a server that may be anybody.
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
		e := risk.New(clock.RealClock{}, prometheusAt(t, risk.PrometheusOptions{URL: server.URL}), risk.Options{})
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
