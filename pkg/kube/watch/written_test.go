package watch_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/kube/watch"
)

func TestWrittenObjectsReplaceTheCachedOnes(t *testing.T) {
	node := func(name, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	}
	early, written, late, other := node("a", "1"), node("a", "2"), node("a", "3"), node("b", "1")
	var w watch.Written[*corev1.Node]
	assert.Same(t, early, w.Newest(early))

	w.Add(written)
	assert.Same(t, written, w.Newest(early))
	assert.Equal(t, []*corev1.Node{written, other}, w.All([]*corev1.Node{early, other}))
	assert.Same(t, late, w.Newest(late))
	assert.Same(t, early, w.Newest(early), "the cache has shown it")

	w.Add(written)
	w.Forget("a")
	assert.Same(t, early, w.Newest(early))
	w.Add(written)
	w.All([]*corev1.Node{other})
	assert.Same(t, early, w.Newest(early), "the node was deleted")
}
