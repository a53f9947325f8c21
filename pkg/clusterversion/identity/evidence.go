package identity

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// RecordedEvidence returns evidence in the form that the ReleaseStatus records: without the message and the log entry.
func RecordedEvidence(list []release.Evidence) []api.SignatureEvidence {
	var out []api.SignatureEvidence
	for _, e := range list {
		s := api.SignatureEvidence{
			Root: e.Root, Threshold: e.Threshold, Method: e.Method, Identity: e.Identity, Issuer: e.Issuer, KeyID: e.KeyID,
			Fingerprint: e.Fingerprint, Certificate: e.Certificate, Algorithm: e.Algorithm, Store: e.Store,
		}
		if !e.SignedAt.IsZero() {
			at := metav1.NewTime(e.SignedAt).Rfc3339Copy()
			s.SignedAt = &at
		}
		out = append(out, s)
	}
	return out
}

// releaseEvidence is the reverse of RecordedEvidence.
func releaseEvidence(list []api.SignatureEvidence) []release.Evidence {
	var out []release.Evidence
	for _, s := range list {
		e := release.Evidence{
			Root: s.Root, Threshold: s.Threshold, Method: s.Method, Identity: s.Identity, Issuer: s.Issuer, KeyID: s.KeyID,
			Fingerprint: s.Fingerprint, Certificate: s.Certificate, Algorithm: s.Algorithm, Store: s.Store,
		}
		if s.SignedAt != nil {
			e.SignedAt = s.SignedAt.Time
		}
		out = append(out, e)
	}
	return out
}

// sameSigners reports whether both lists have the same signers, wherever the signatures were found.
func sameSigners(a, b []api.SignatureEvidence) bool {
	return slices.EqualFunc(a, b, func(a, b api.SignatureEvidence) bool {
		return a.Root == b.Root && a.Threshold == b.Threshold && a.Method == b.Method && a.KeyID == b.KeyID && a.Identity == b.Identity
	})
}
