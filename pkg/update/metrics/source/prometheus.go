// Package source answers queries of PromQL, such as those in the rules of update risks, and reads alerts. It takes the connection to a Prometheus.
// Its callers decide what the answers mean.
package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	promapi "github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/update/firing"
	"github.com/cluster-version/cvo/pkg/update/risk"
)

// Limits for queries to a Prometheus and its responses. A query that classifies clusters has one result. The number of commas limits the
// length of lists, because a list of empty values needs many times its size in memory.
const (
	// MaxExpression is the maximum length of a query in bytes.
	MaxExpression  = 16 << 10
	maxQueryAnswer = 1 << 20
	maxAlertAnswer = 4 << 20
	maxCommas      = 100_000
	maxHeader      = 64 << 10
)

// PrometheusOptions configures the connection to a Prometheus.
type PrometheusOptions struct {
	// URL is the server's URL. Requests append paths such as "/api/v1/query".
	URL string
	// CAFile contains the CA certificates for the server's certificate; empty means the system's CAs. It is read for each connection.
	CAFile string
	// TokenFile contains the bearer token; empty means no token. It is read for each request.
	TokenFile string
	// Address returns the IP address of the host in URL; nil means DNS. Its error may be risk.ErrNoPrometheus.
	Address func(ctx context.Context) (string, error)
}

// Prometheus queries a server with the HTTP API of Prometheus, such as Thanos Querier. It only reads.
type Prometheus struct {
	host string
	api  promv1.API
}

// NewPrometheus returns a source that queries the server in options. It sends no request.
func NewPrometheus(options PrometheusOptions) (*Prometheus, error) {
	target, err := url.Parse(options.URL)
	if err != nil || target.Host == "" || (target.Scheme != "https" && target.Scheme != "http") {
		return nil, fmt.Errorf("%q is not a valid URL of a Prometheus: use https://host:port", options.URL)
	}
	if options.TokenFile != "" && target.Scheme != "https" && !isLoopback(target.Hostname()) {
		return nil, fmt.Errorf("a token must not be sent to %s without TLS: use https or no token", target.Redacted())
	}
	// By default, Thanos answers without the stores that it does not reach, as if their metrics were absent. Prometheus ignores the parameter.
	parameters := target.Query()
	parameters.Set("partial_response", "false")
	target.RawQuery = parameters.Encode()
	client, err := promapi.NewClient(promapi.Config{Address: target.String(), Client: newHTTPClient(target, options)})
	if err != nil {
		return nil, fmt.Errorf("preparing a request to %s: %w", target.Redacted(), err)
	}
	return &Prometheus{host: target.Host, api: promv1.NewAPI(getOnlyClient{client})}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Query implements Source.
func (p *Prometheus) Query(ctx context.Context, expression string) ([]float64, error) {
	if len(expression) > MaxExpression {
		return nil, fmt.Errorf("the query has %d bytes, but the limit is %d", len(expression), MaxExpression)
	}
	var options []promv1.Option
	if end, ok := ctx.Deadline(); ok {
		if timeout := serverTimeout(time.Until(end)); timeout > 0 {
			options = append(options, promv1.WithTimeout(timeout))
		}
	}
	value, _, _, err := p.api.Query(ctx, expression, time.Time{}, options...)
	if err != nil {
		return nil, p.explain(ctx, err)
	}
	return samples(value)
}

// serverTimeout returns a timeout at which the server can still report a reason before the client stops waiting. A server that does not
// respond by then is unreachable. Prometheus accepts only whole seconds.
func serverTimeout(left time.Duration) time.Duration {
	return (left - left/10).Truncate(time.Second)
}

// samples returns the values of a vector.
func samples(value model.Value) ([]float64, error) {
	vector, ok := value.(model.Vector)
	if !ok {
		kind := "nothing"
		if value != nil {
			kind = "a " + value.Type().String()
		}
		return nil, fmt.Errorf("the result of the query is %s, not a vector", kind)
	}
	values := make([]float64, len(vector))
	for i, sample := range vector {
		if sample == nil || sample.Histogram != nil {
			return nil, errors.New("the result of the query is a histogram, not a number")
		}
		values[i] = float64(sample.Value)
	}
	return values, nil
}

// Alerts implements Source.
func (p *Prometheus) Alerts(ctx context.Context) ([]firing.Alert, error) {
	found, err := p.api.Alerts(ctx)
	if err != nil {
		return nil, p.explain(ctx, err)
	}
	alerts := make([]firing.Alert, len(found.Alerts))
	for i, a := range found.Alerts {
		alerts[i] = firing.Alert{Labels: texts(a.Labels), Annotations: texts(a.Annotations), State: string(a.State), ActiveAt: a.ActiveAt}
	}
	return alerts, nil
}

func texts(set model.LabelSet) map[string]string {
	out := make(map[string]string, len(set))
	for name, value := range set {
		out[string(name)] = string(value)
	}
	return out
}

// getOnlyClient is a client that sends only GET. The library tries POST first, but the proxy of a cluster's Prometheus rejects POST because
// it may change something.
type getOnlyClient struct{ promapi.Client }

// Do implements promapi.Client.
func (c getOnlyClient) Do(ctx context.Context, req *http.Request) (*http.Response, []byte, error) {
	if req.Method != http.MethodGet {
		return &http.Response{StatusCode: http.StatusNotImplemented}, nil, nil
	}
	resp, body, err := c.Client.Do(ctx, req)
	if err == nil && bytes.Count(body, []byte(",")) > maxCommas {
		err = fmt.Errorf("%w is a list with more than %d entries", errAnswer, maxCommas)
	}
	return resp, body, err
}

// unreachable wraps an error so that it also matches ErrUnreachable. The text does not change.
type unreachable struct{ error }

// Is makes errors.Is match risk.ErrUnreachable.
func (unreachable) Is(target error) bool { return target == risk.ErrUnreachable }

// Unwrap returns the wrapped error.
func (u unreachable) Unwrap() error { return u.error }

// explain describes an error with a stable text, because conditions show it: without the connection's local port and without the query. An
// HTTP response concerns only the query. If the server does not respond, or rejects the operator, the error concerns the whole server.
func (p *Prometheus) explain(ctx context.Context, err error) error {
	apiError, ok := errors.AsType[*promv1.Error](err)
	if !ok {
		err = withoutDetails(ctx, err)
		wrapped := fmt.Errorf("querying Prometheus at %s: %w", p.host, err)
		if errors.Is(err, errAnswer) {
			return wrapped
		}
		return unreachable{wrapped}
	}
	text := apiError.Msg
	if apiError.Detail != "" {
		text += ": " + apiError.Detail
	}
	text = firing.Line(text)
	switch apiError.Type {
	case promv1.ErrBadData, promv1.ErrExec, promv1.ErrTimeout, promv1.ErrCanceled:
		text = fmt.Sprintf("%s: %s", apiError.Type, text)
	case promv1.ErrServer:
		if bytes.Contains([]byte(apiError.Detail), []byte(`"errorType":"timeout"`)) {
			text = "the query takes too long"
		}
	case promv1.ErrClient:
		if strings.HasSuffix(apiError.Msg, "401") || strings.HasSuffix(apiError.Msg, "403") {
			text += " (grant the operator's service account permission to read metrics)"
		}
		return unreachable{fmt.Errorf("querying Prometheus at %s: %w", p.host, api.Reworded(apiError, text))}
	default:
	}
	return fmt.Errorf("querying Prometheus at %s: %w", p.host, api.Reworded(apiError, text))
}

// errAnswer means that the server's response is useless.
var errAnswer = errors.New("the response")

// withoutDetails removes the varying parts of an error.
func withoutDetails(ctx context.Context, err error) error {
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Errorf("%w has more than %d bytes", errAnswer, tooLong.Limit)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if ofURL, ok := errors.AsType[*url.Error](err); ok {
		err = ofURL.Err
	}
	if ofNet, ok := errors.AsType[*net.OpError](err); ok && ofNet.Source != nil {
		err = &net.OpError{Op: ofNet.Op, Net: ofNet.Net, Addr: ofNet.Addr, Err: ofNet.Err}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return api.Reworded(err, "no response in time")
	}
	return err
}
