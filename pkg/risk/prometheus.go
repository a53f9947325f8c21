package risk

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
)

// Limits of what is sent to a Prometheus, and of its answers. A query that classifies a cluster has one result; lists are
// bounded by their commas, because in memory a list of nothings takes many times its size.
const (
	maxExpression  = 16 << 10
	maxQueryAnswer = 1 << 20
	maxAlertAnswer = 4 << 20
	maxCommas      = 100_000
	maxHeader      = 64 << 10
)

// PrometheusOptions say how a Prometheus is reached.
type PrometheusOptions struct {
	// URL of the server, to which "/api/v1/query" is added.
	URL string
	// CAFile has the certificates of the authorities that the server's certificate may come from; empty for those of the
	// system. It is read for each connection.
	CAFile string
	// TokenFile has the bearer token to show; empty for none. It is read for each request.
	TokenFile string
	// Address finds the IP address of the host that URL names; nil for DNS. Its error may be ErrNoPrometheus.
	Address func(ctx context.Context) (string, error)
}

// Prometheus asks a Prometheus over its HTTP API, or whatever speaks it, such as the querier of Thanos. It only reads.
type Prometheus struct {
	host string
	api  promv1.API
}

// NewPrometheus returns a source that asks the server of the options. Nothing is sent yet.
func NewPrometheus(options PrometheusOptions) (*Prometheus, error) {
	target, err := url.Parse(options.URL)
	if err != nil || target.Host == "" || (target.Scheme != "https" && target.Scheme != "http") {
		return nil, fmt.Errorf("the URL of Prometheus %q is none: give it as https://host:port", options.URL)
	}
	if options.TokenFile != "" && target.Scheme != "https" && !isLoopback(target.Hostname()) {
		return nil, fmt.Errorf("a token must not be sent to %s in the clear: use https, or no token", target.Redacted())
	}
	client, err := promapi.NewClient(promapi.Config{Address: options.URL, Client: newHTTPClient(target, options)})
	if err != nil {
		return nil, fmt.Errorf("preparing to ask %s: %w", target.Redacted(), err)
	}
	return &Prometheus{host: target.Host, api: promv1.NewAPI(reading{client})}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Query implements Source.
func (p *Prometheus) Query(ctx context.Context, expression string) ([]float64, error) {
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("the query has %d bytes, more than the %d that are sent", len(expression), maxExpression)
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

// serverTimeout is when the server should give up, so that it says why before nobody listens any more: who says nothing
// at all until then answers nobody. A Prometheus reads whole seconds only.
func serverTimeout(left time.Duration) time.Duration {
	return (left - left/10).Truncate(time.Second)
}

// samples are the values of a vector.
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
func (p *Prometheus) Alerts(ctx context.Context) ([]promv1.Alert, error) {
	found, err := p.api.Alerts(ctx)
	if err != nil {
		return nil, p.explain(ctx, err)
	}
	return found.Alerts, nil
}

// reading is a client that sends nothing but GET: the proxy in front of a cluster's Prometheus takes a POST for the wish
// to change something. The library asks by POST, and by GET when it is told that the server does not know that.
type reading struct{ promapi.Client }

// Do implements promapi.Client.
func (c reading) Do(ctx context.Context, req *http.Request) (*http.Response, []byte, error) {
	if req.Method != http.MethodGet {
		return &http.Response{StatusCode: http.StatusNotImplemented}, nil, nil
	}
	resp, body, err := c.Client.Do(ctx, req)
	if err == nil && bytes.Count(body, []byte(",")) > maxCommas {
		err = fmt.Errorf("%w is a list of more than %d things", errAnswer, maxCommas)
	}
	return resp, body, err
}

// unreachable is an error that is ErrUnreachable, too, and reads as it did.
type unreachable struct{ error }

// Is tells that it is ErrUnreachable.
func (unreachable) Is(target error) bool { return target == ErrUnreachable }

// Unwrap returns the error as it was.
func (u unreachable) Unwrap() error { return u.error }

// explain tells what went wrong in the same words each time, because they are for conditions: without the port that the
// system chose for a connection, and without the query. An answer, whatever it says, is about the query, which may be
// what the server stumbles over; only silence and a refusal to talk to the operator are about the server.
func (p *Prometheus) explain(ctx context.Context, err error) error {
	said, ok := errors.AsType[*promv1.Error](err)
	if !ok {
		err = plain(ctx, err)
		asked := fmt.Errorf("asking Prometheus at %s: %w", p.host, err)
		if errors.Is(err, errAnswer) {
			return asked
		}
		return unreachable{asked}
	}
	text := said.Msg
	if said.Detail != "" {
		text += ": " + said.Detail
	}
	text = printable(model.LabelValue(text))
	switch said.Type {
	case promv1.ErrBadData, promv1.ErrExec, promv1.ErrTimeout, promv1.ErrCanceled:
		text = fmt.Sprintf("%s: %s", said.Type, text)
	case promv1.ErrServer:
		if bytes.Contains([]byte(said.Detail), []byte(`"errorType":"timeout"`)) {
			text = "the query takes too long"
		}
	case promv1.ErrClient:
		if strings.HasSuffix(said.Msg, "401") || strings.HasSuffix(said.Msg, "403") {
			text += " (grant the operator's service account the right to read metrics)"
		}
		return unreachable{fmt.Errorf("asking Prometheus at %s: %w", p.host, api.Reworded(said, text))}
	default:
	}
	return fmt.Errorf("asking Prometheus at %s: %w", p.host, api.Reworded(said, text))
}

// errAnswer: there was an answer, which is of no use.
var errAnswer = errors.New("the answer")

// plain takes from an error what differs each time.
func plain(ctx context.Context, err error) error {
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
		return api.Reworded(err, "no answer in time")
	}
	return err
}
