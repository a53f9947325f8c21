package clustermetrics

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/policy"
)

// Results of a verification, used as label values.
const (
	resultVerified   = "verified"   // signed as the root of trust requires
	resultUnverified = "unverified" // not signed as the root of trust requires
	resultNoTrust    = "no_trust"   // no root of trust exists
	resultUnknown    = "unknown"    // the check could not be completed
)

// noMethod is the method label of a verification that no signature satisfied.
const noMethod = "none"

// verifications counts the results of verifying release images.
type verifications struct{ total *prometheus.CounterVec }

func newVerifications(registry prometheus.Registerer) (*verifications, error) {
	v := &verifications{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cvo_verify_verifications_total",
		Help: "Verifications of release images by result and by method of the accepted signatures, or none.",
	}, []string{"method", "result"})}
	// The series for alerts exist from the start, because Prometheus needs two values to see an increase.
	for _, result := range []string{resultUnverified, resultNoTrust, resultUnknown} {
		v.total.WithLabelValues(noMethod, result)
	}
	return v, registry.Register(v.total)
}

// outside returns an Outside that counts its verifications.
func (v *verifications) outside(o accept.Outside) accept.Outside {
	return countedOutside{o, v}
}

type countedOutside struct {
	accept.Outside
	counts *verifications
}

// Verifier implements accept.Outside.
func (o countedOutside) Verifier(ctx context.Context, img release.Image, running *payload.Payload) (accept.Verifier, error) {
	verifier, err := o.Outside.Verifier(ctx, img, running)
	if err != nil {
		o.counts.count(ctx, nil, err)
		return nil, err
	}
	return countedVerifier{verifier, o.counts}, nil
}

type countedVerifier struct {
	accept.Verifier
	counts *verifications
}

// Verify implements accept.Verifier.
func (v countedVerifier) Verify(ctx context.Context, img release.Image) ([]release.Evidence, error) {
	evidence, err := v.Verifier.Verify(ctx, img)
	v.counts.count(ctx, evidence, err)
	return evidence, err
}

// count counts a verification. A canceled one has no result and does not count.
func (v *verifications) count(ctx context.Context, evidence []release.Evidence, err error) {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, policy.ErrNone):
		v.total.WithLabelValues(noMethod, resultNoTrust).Inc()
	case errors.Is(err, verify.ErrUnverified):
		v.total.WithLabelValues(noMethod, resultUnverified).Inc()
	case err != nil:
		v.total.WithLabelValues(noMethod, resultUnknown).Inc()
	default:
		methods := map[string]bool{}
		for _, e := range evidence {
			if !methods[e.Method] {
				methods[e.Method] = true
				v.total.WithLabelValues(e.Method, resultVerified).Inc()
			}
		}
	}
}
