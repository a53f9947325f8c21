package ownership_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/apply/ownership"
)

// textsOf returns the fields of each entry as JSON.
func textsOf(list []metav1.ManagedFieldsEntry) (texts []string) {
	for _, e := range list {
		texts = append(texts, string(e.FieldsV1.GetRawBytes()))
	}
	return texts
}

func TestGiveUpMovesTheFieldFromOurEntries(t *testing.T) {
	const both, rest, kept = `{"f:spec":{"f:paused":{},"f:replicas":{}}}`, `{"f:spec":{"f:paused":{}}}`, `{"f:spec":{"f:replicas":{}}}`
	for _, tt := range []struct {
		name   string
		before []metav1.ManagedFieldsEntry
		mayOwn bool
		want   []string
	}{
		{"moves it from our entry", entries(applied(both)), true, []string{rest, kept}},
		{"moves it from the entry of a former manager", entries(applied(rest), wrote("cluster-bootstrap", "v1", both)), true, []string{rest, rest, kept}},
		{"changes nothing without the field", entries(applied(rest)), false, nil},
		{"changes nothing if another manager has the field", entries(applied(both), wrote("kubectl-edit", "v1", both)), true, nil},
		{"ignores unreadable entries", entries(applied(both), wrote("kubectl-edit", "v1", `{`)), true, []string{rest, `{`, kept}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			next, changed := ownership.GiveUp(tt.before, fieldpath.MakePathOrDie("spec", "replicas"))
			assert.Equal(t, tt.want != nil, changed)
			if changed {
				assert.Equal(t, tt.want, textsOf(next))
				again, changed := ownership.GiveUp(next, fieldpath.MakePathOrDie("spec", "replicas"))
				assert.False(t, changed, "once is enough")
				assert.Equal(t, next, again)
			} else {
				assert.Equal(t, tt.before, next)
			}
			assert.Equal(t, tt.mayOwn, ownership.MayOwnReplicas(tt.before))
		})
	}
}

func TestTakeBackTakesFieldsFromTheServersEntry(t *testing.T) {
	for _, tt := range []struct {
		name         string
		ours, server string
		// lost is the name of a field that an earlier release set.
		lost string
		// want contains our entry and the server's, which may disappear.
		want []string
		more bool
	}{
		{
			"takes the fields that we apply", `{"f:spec":{"f:port":{}}}`, `{"f:spec":{".":{},"f:note":{},"f:port":{}}}`, "",
			[]string{`{"f:spec":{"f:port":{}}}`, `{"f:spec":{".":{},"f:note":{}}}`},
			false,
		},
		{
			"takes the fields that an earlier release set", `{"f:spec":{"f:port":{}}}`, `{"f:spec":{"f:note":{},"f:old":{},"f:port":{}}}`, "old",
			[]string{`{"f:spec":{"f:old":{},"f:port":{}}}`, `{"f:spec":{"f:note":{}}}`},
			true,
		},
		{
			"takes maps that are empty then", `{"f:spec":{"f:a":{"f:b":{}}}}`, `{"f:spec":{".":{},"f:a":{".":{},"f:b":{}}}}`, "",
			[]string{`{"f:spec":{"f:a":{"f:b":{}}}}`},
			false,
		},
		{"changes nothing if the server has none of our fields", `{"f:spec":{"f:port":{}}}`, `{"f:spec":{"f:note":{}}}`, "", nil, false},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			other := wrote("kubectl-edit", "v1", tt.server)
			before := entries(applied(tt.ours), other, wrote("before-first-apply", "v1", tt.server))
			lost := func(path fieldpath.Path) bool {
				return tt.lost != "" && path[len(path)-1].FieldName != nil && *path[len(path)-1].FieldName == tt.lost
			}
			next, more, changed := ownership.TakeBack(configMaps, before, lost)
			assert.Equal(t, tt.want != nil, changed)
			assert.Equal(t, tt.more, more)
			if !changed {
				assert.Equal(t, before, next)
				return
			}
			assert.Equal(t, other, next[1], "entries of other managers stay")
			assert.Equal(t, tt.want, textsOf(append(next[:1:1], next[2:]...)))
		})
	}
}
