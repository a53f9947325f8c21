package watch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLatestIsTheNewestVersion plays a watch whose events arrive while this process writes version 12.
func TestLatestIsTheNewestVersion(t *testing.T) {
	version := func(v string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: v}}
	}
	for _, tt := range []struct {
		name string
		// before and after are the events before and after the response to the write.
		before, after []*corev1.Secret
		want          string
	}{
		{"no event", nil, nil, "12"},
		{"its own event is first", []*corev1.Secret{version("12")}, nil, "12"},
		{"its own event is last", nil, []*corev1.Secret{version("12")}, "12"},
		{"the event of an earlier write is first", []*corev1.Secret{version("9")}, nil, "12"},
		{"the event of an earlier write is last", nil, []*corev1.Secret{version("9")}, "12"},
		{"the event of a later write is first", []*corev1.Secret{version("12"), version("100")}, nil, "100"},
		{"the event of a later write is last", nil, []*corev1.Secret{version("12"), version("100")}, "100"},
		{"etcd is restored from a backup", nil, []*corev1.Secret{version("12"), version("5"), version("6")}, "6"},
		{"its deletion is first", []*corev1.Secret{version("12"), nil}, nil, ""},
		{"its deletion is last", nil, []*corev1.Secret{version("12"), nil}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var latest Latest[*corev1.Secret]
			latest.Observe(version("8"))
			seen := latest
			for _, event := range tt.before {
				latest.Observe(event)
			}
			latest.Wrote(seen, version("12"))
			for _, event := range tt.after {
				latest.Observe(event)
			}
			if tt.want == "" {
				assert.Nil(t, latest.Object)
				return
			}
			assert.Equal(t, tt.want, latest.Object.ResourceVersion)
		})
	}
}
