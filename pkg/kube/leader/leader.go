// Package leader reads the Lease of a process: the leader, the time since its last renewal, and the key by which a client recognizes it. An
// Identity is the holder's text in the Lease. Package lead competes for the Lease.
package leader

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/api"
)

// Record is the current or last leader according to a Lease.
type Record struct {
	Identity

	// Namespace and LeaseName identify the Lease.
	Namespace, LeaseName string
	// RenewedAt is the time of the last renewal; zero if no replica has ever led. Silent is the time since then.
	RenewedAt time.Time
	Silent    time.Duration
	// ReadAt is the time when the Lease was read, by the API server's clock.
	ReadAt time.Time
	// Gone is true if the Lease has no holder. Either it was released, and Host is empty, or it was not renewed in time.
	Gone bool
	// AfterUninstall is true if the Lease has no holder and an uninstall was the last one, so that it did not finish.
	AfterUninstall bool
}

// IsUninstall reports whether an uninstall holds the Lease, so that no replica leads.
func (r Record) IsUninstall() bool { return !r.Gone && r.Host == api.UninstallHolder }

// Vacancy returns the reason why no replica leads, without the time since then. It is empty if a replica leads, or if none has ever led.
func (r Record) Vacancy() string {
	lease := fmt.Sprintf("Lease %s/%s", r.Namespace, r.LeaseName)
	switch {
	case r.IsUninstall():
		return lease + " is held by 'cvo uninstall'"
	case !r.Gone || r.RenewedAt.IsZero():
		return ""
	case r.Host == "" && r.AfterUninstall:
		return lease + " was released by 'cvo uninstall', which did not finish"
	case r.Host == "":
		return lease + " was released"
	}
	return fmt.Sprintf("%s expired: its holder %s stopped renewing it", lease, r.Host)
}

// Find reads the Lease of the operator for the ClusterVersion with the given name. Without a Lease, the result is Gone. It measures the
// Lease's age only with the API server's clock, because the clocks of the reader and the leader may be wrong.
func Find(ctx context.Context, cfg *rest.Config, namespace, name string) (Record, error) {
	client, now, err := connect(cfg)
	if err != nil {
		return Record{}, err
	}
	lease, err := client.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Record{Namespace: namespace, LeaseName: name, ReadAt: now(), Gone: true}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("reading Lease %s/%s: %w", namespace, name, err)
	}
	return recordOf(lease, now()), nil
}

// FindAll is like Find for the Leases with the given name in all namespaces, in one request.
func FindAll(ctx context.Context, cfg *rest.Config, name string) ([]Record, error) {
	client, now, err := connect(cfg)
	if err != nil {
		return nil, err
	}
	leases, err := client.Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil {
		return nil, fmt.Errorf("listing Leases %s: %w", name, err)
	}
	records := make([]Record, len(leases.Items))
	for i := range leases.Items {
		records[i] = recordOf(&leases.Items[i], now())
	}
	return records, nil
}

// connect returns a client for Leases, and the time of its last response by the server's clock.
func connect(cfg *rest.Config) (coordinationv1client.LeasesGetter, func() time.Time, error) {
	dated := &dateReader{}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(dated.wrap)
	client, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("creating lease client: %w", err)
	}
	return client, func() time.Time { return dated.now }, nil
}

// dateReader records the time of a server's last response by the server's clock, or by ours if the response has no date. It supports one
// request at a time.
type dateReader struct {
	next http.RoundTripper
	now  time.Time
}

func (r *dateReader) wrap(next http.RoundTripper) http.RoundTripper {
	r.next = next
	return r
}

// RoundTrip implements http.RoundTripper.
func (r *dateReader) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	r.now = time.Now()
	if err != nil {
		return nil, err
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		r.now = date
	}
	return resp, nil
}

// recordOf evaluates a Lease at a time on the API server's clock.
func recordOf(lease *coordinationv1.Lease, now time.Time) Record {
	spec, l := lease.Spec, Record{Namespace: lease.Namespace, LeaseName: lease.Name, ReadAt: now, Gone: true}
	if spec.RenewTime != nil {
		l.RenewedAt = renewedAt(lease)
		l.Silent = max(0, now.Sub(l.RenewedAt))
	}
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" {
		l.AfterUninstall = slices.ContainsFunc(lease.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == api.InstallManager && sets(e, "holderIdentity")
		})
		return l
	}
	l.Identity = ParseIdentity(*spec.HolderIdentity)
	if spec.LeaseDurationSeconds != nil {
		l.Gone = l.Silent > time.Duration(*spec.LeaseDurationSeconds)*time.Second
	}
	l.AfterUninstall = l.Gone && l.Host == api.UninstallHolder
	return l
}

// sets reports whether a writer has set a field of a Lease.
func sets(entry metav1.ManagedFieldsEntry, field string) bool {
	return entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:`+field+`"`))
}

// renewedAt returns the time when the API server stored the last renewal, or the holder's own time if that is not recorded.
func renewedAt(lease *coordinationv1.Lease) time.Time {
	var last time.Time
	for _, entry := range lease.ManagedFields {
		if entry.Time != nil && entry.Time.After(last) && sets(entry, "renewTime") {
			last = entry.Time.Time
		}
	}
	if last.IsZero() {
		return lease.Spec.RenewTime.Time
	}
	return last
}
