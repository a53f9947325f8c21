package leader

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/env"
)

// controlPlane is the control plane of all tests in this package.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// fingerprint has the form of a key's fingerprint.
var fingerprint = strings.Repeat("x", 43)

func TestIdentityIsParsed(t *testing.T) {
	const unique = "5b5c5d5e-0000-4000-8000-000000000001"
	for _, c := range []struct {
		name, holder string
		want         Identity
	}{
		{"it reads the host and the fingerprint", "cvo-7d9f_" + unique + "_" + fingerprint, Identity{"cvo-7d9f", unique, fingerprint}},
		{"it reads the format of OpenShift's operator", "cvo-7d9f_" + unique, Identity{"cvo-7d9f", unique, ""}},
		{"it reads a host with underscores", "my_own_host_" + unique + "_" + fingerprint, Identity{"my_own_host", unique, fingerprint}},
		{"it rejects a shorter fingerprint", "host_" + unique + "_abc", Identity{Host: "host_" + unique + "_abc"}},
		{"it treats a holder in another form as a host", "somebody", Identity{Host: "somebody"}},
		{"it reads an empty holder", "", Identity{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ParseIdentity(c.holder)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.holder, got.String())
		})
	}
}

func TestIdentityContainsThePodOrTheHost(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	for pod, want := range map[string]string{"cvo-7d9f": "cvo-7d9f", "": host} {
		id, err := NewIdentity(pod, "")
		require.NoError(t, err)
		assert.Equal(t, want, id.Host)
		assert.Equal(t, id, ParseIdentity(id.String()))
	}
}

//threat:lease-holder
func FuzzParseIdentity(f *testing.F) {
	f.Add("cvo_5b5c5d5e-0000-4000-8000-000000000001_" + fingerprint)
	f.Add("__")
	f.Fuzz(func(t *testing.T, holder string) {
		assert.Equal(t, holder, ParseIdentity(holder).String())
	})
}

func TestLeaderIsReadFromTheLease(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	renewed, seconds, holder, noHolder := metav1.NewMicroTime(at), int32(30), "pod_5b5c5d5e-0000-4000-8000-000000000001", ""
	held := coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed, LeaseDurationSeconds: &seconds}
	stored := func(at time.Time, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Time: &metav1.Time{Time: at}, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	for _, c := range []struct {
		name   string
		spec   coordinationv1.LeaseSpec
		stored []metav1.ManagedFieldsEntry
		now    time.Time
		want   Record
	}{
		{
			"it shows the leader", held, nil, at.Add(30 * time.Second),
			Record{Identity: ParseIdentity(holder), RenewedAt: at, Silent: 30 * time.Second},
		},
		{
			"it shows a silent leader as gone", held, nil, at.Add(31 * time.Second),
			Record{Identity: ParseIdentity(holder), RenewedAt: at, Silent: 31 * time.Second, Gone: true},
		},
		{
			"it ignores the leader's clock",
			held,
			[]metav1.ManagedFieldsEntry{
				stored(at.Add(time.Hour), `{"f:spec":{"f:renewTime":{}}}`), stored(at.Add(2*time.Hour), `{"f:metadata":{"f:annotations":{}}}`),
			},
			at.Add(time.Hour + time.Second),
			Record{Identity: ParseIdentity(holder), RenewedAt: at.Add(time.Hour), Silent: time.Second},
		},
		{
			"it shows a released Lease",
			coordinationv1.LeaseSpec{HolderIdentity: &noHolder, RenewTime: &renewed, LeaseDurationSeconds: &seconds},
			nil, at,
			Record{RenewedAt: at, Gone: true},
		},
		{
			"it recognizes an uninstall",
			coordinationv1.LeaseSpec{HolderIdentity: new(api.UninstallHolder), RenewTime: &renewed, LeaseDurationSeconds: &seconds},
			nil, at,
			Record{Identity: Identity{Host: api.UninstallHolder}, RenewedAt: at},
		},
		{
			"it recognizes a released uninstall",
			coordinationv1.LeaseSpec{HolderIdentity: &noHolder, RenewTime: &renewed, LeaseDurationSeconds: &seconds},
			[]metav1.ManagedFieldsEntry{{Manager: api.InstallManager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:holderIdentity":{}}}`)}},
			at,
			Record{RenewedAt: at, Gone: true, AfterUninstall: true},
		},
		{
			"it recognizes an operator that led after an uninstall",
			coordinationv1.LeaseSpec{HolderIdentity: &noHolder, RenewTime: &renewed, LeaseDurationSeconds: &seconds},
			[]metav1.ManagedFieldsEntry{
				{Manager: api.InstallManager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:acquireTime":{}}}`)},
				{Manager: "cvo", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:holderIdentity":{}}}`)},
			},
			at,
			Record{RenewedAt: at, Gone: true},
		},
		{
			"it recognizes a killed uninstall",
			coordinationv1.LeaseSpec{HolderIdentity: new(api.UninstallHolder), RenewTime: &renewed, LeaseDurationSeconds: &seconds},
			nil, at.Add(31 * time.Second),
			Record{Identity: Identity{Host: api.UninstallHolder}, RenewedAt: at, Silent: 31 * time.Second, Gone: true, AfterUninstall: true},
		},
		{"it accepts an empty Lease", coordinationv1.LeaseSpec{}, nil, at, Record{Gone: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ManagedFields: c.stored}, Spec: c.spec}
			c.want.ReadAt = c.now
			got := recordOf(lease, c.now)
			assert.Equal(t, c.want, got)
			assert.Equal(t, got.Host == api.UninstallHolder && !got.Gone, got.IsUninstall())
		})
	}
	found, err := Find(t.Context(), controlPlane.For(t).Config("test"), "default", "never-held")
	require.NoError(t, err)
	assert.True(t, found.Gone)
	assert.Empty(t, found.Vacancy(), "another Lease may have a leader")
}

// TestFindUsesTheServersClock uses wrong clocks for the leader and the reader, each with a different error.
func TestFindUsesTheServersClock(t *testing.T) {
	cfg := controlPlane.For(t).Config("test")
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
		leader, err := Find(t.Context(), cfg, "default", lease.Name)
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
		leader, err = Find(t.Context(), later, "default", lease.Name)
		require.NoError(t, err)
		assert.True(t, leader.Gone, "an hour has passed on the server's clock")
		assert.Greater(t, leader.Silent, 59*time.Minute)
	}
}

func TestFindAllFindsTheLeasesOfAllNamespaces(t *testing.T) {
	cfg := controlPlane.For(t).Config("test")
	holder, seconds := "somewhere_5b5c5d5e-0000-4000-8000-000000000001", int32(60)
	for _, at := range []struct{ namespace, name string }{{"default", "found"}, {"kube-public", "found"}, {"default", "other"}} {
		_, err := kubernetes.NewForConfigOrDie(cfg).CoordinationV1().Leases(at.namespace).Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: at.name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: time.Now()}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	requests := 0
	counted := rest.CopyConfig(cfg)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			requests++
			return next.RoundTrip(req)
		})
	})

	all, err := FindAll(t.Context(), counted, "found")

	require.NoError(t, err)
	assert.Equal(t, 1, requests)
	require.Len(t, all, 2)
	for i, namespace := range []string{"default", "kube-public"} {
		one, err := Find(t.Context(), cfg, namespace, "found")
		require.NoError(t, err)
		assert.False(t, one.Gone)
		one.Silent, all[i].Silent = 0, 0
		one.ReadAt, all[i].ReadAt = time.Time{}, time.Time{}
		assert.Equal(t, one, all[i])
	}
}

// TestHoldersOfTheFirstVersionAreParsed reads holders that the first version wrote to Leases, and one of a later version.
func TestHoldersOfTheFirstVersionAreParsed(t *testing.T) {
	t.Parallel()
	const unique, fingerprint = "0b8d2c3e-5d1f-4f0e-9a77-0123456789ab", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmno-_"
	for holder, want := range map[string]Identity{
		"cluster-version-operator-7d4b9c-x2x4z_" + unique:                     {Host: "cluster-version-operator-7d4b9c-x2x4z", Unique: unique},
		"cluster-version-operator-7d4b9c-x2x4z_" + unique + "_" + fingerprint: {Host: "cluster-version-operator-7d4b9c-x2x4z", Unique: unique, Fingerprint: fingerprint},
		"of-a-later_format_with_more":                                         {Host: "of-a-later_format_with_more"},
	} {
		got := ParseIdentity(holder)
		assert.Equal(t, want.Host, got.Host)
		assert.Equal(t, want.Fingerprint, got.Fingerprint)
	}
}
