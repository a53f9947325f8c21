package operator

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-version/cvo/pkg/clusterversion"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

// Results of a verification, as a label.
const (
	resultVerified   = "verified"   // signed as the root of trust demands
	resultUnverified = "unverified" // not signed so
	resultNoTrust    = "no_trust"   // there is no root of trust
	resultUnknown    = "unknown"    // it could not be found out
)

// noMethod is the method of a verification that no signature has satisfied.
const noMethod = "none"

// verifications counts what verifying release images has come to.
type verifications struct{ total *prometheus.CounterVec }

func newVerifications(registry prometheus.Registerer) (*verifications, error) {
	v := &verifications{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cvo_verify_verifications_total",
		Help: "Verifications of release images, by the method of the signatures that counted, none if none did, and by what it came to.",
	}, []string{"method", "result"})}
	// What alerts look for is there from the start: an increase is seen only from one value to the next.
	for _, result := range []string{resultUnverified, resultNoTrust, resultUnknown} {
		v.total.WithLabelValues(noMethod, result)
	}
	return v, registry.Register(v.total)
}

// outside counts the verifications of an Outside.
func (v *verifications) outside(o clusterversion.Outside) clusterversion.Outside {
	return countedOutside{o, v}
}

type countedOutside struct {
	clusterversion.Outside
	counts *verifications
}

// Verifier implements clusterversion.Outside.
func (o countedOutside) Verifier(ctx context.Context, img release.Image, running *payload.Payload) (clusterversion.Verifier, error) {
	verifier, err := o.Outside.Verifier(ctx, img, running)
	if err != nil {
		o.counts.count(ctx, nil, err)
		return nil, err
	}
	return countedVerifier{verifier, o.counts}, nil
}

type countedVerifier struct {
	clusterversion.Verifier
	counts *verifications
}

// Verify implements clusterversion.Verifier.
func (v countedVerifier) Verify(ctx context.Context, img release.Image) ([]release.Evidence, error) {
	evidence, err := v.Verifier.Verify(ctx, img)
	v.counts.count(ctx, evidence, err)
	return evidence, err
}

// count notes one verification; one that was cancelled came to nothing.
func (v *verifications) count(ctx context.Context, evidence []release.Evidence, err error) {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, verify.ErrNoPolicy):
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
