package clusterconfig_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/clusterconfig"
)

// pages is a reader that serves one ConfigMap a page. An error ends the list.
type pages struct {
	client.Reader
	names []string
	err   error
}

func (p pages) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(options)
	if o.Limit == 0 {
		return errors.New("a list without a limit")
	}
	into := list.(*corev1.ConfigMapList)
	into.Items = append(into.Items[:0], corev1.ConfigMap{})
	for i, name := range p.names {
		if o.Continue == name || o.Continue == "" && i == 0 {
			into.Items[0].Name, into.Continue = name, ""
			if i+1 < len(p.names) {
				into.Continue = p.names[i+1]
				return nil
			}
		}
	}
	return p.err
}

func TestListReadsAllPages(t *testing.T) {
	list := &corev1.ConfigMapList{}
	require.NoError(t, clusterconfig.List(t.Context(), pages{names: []string{"a", "b", "c"}}, list))
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	assert.Equal(t, []string{"a", "b", "c"}, names)
	assert.Equal(t, metav1.ListMeta{}, list.ListMeta)
}

func TestListOfAMissingKindIsEmpty(t *testing.T) {
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "")
	list := &corev1.ConfigMapList{}
	require.NoError(t, clusterconfig.List(t.Context(), pages{err: missing}, list))
	assert.Empty(t, list.Items)

	broken := errors.New("broken")
	assert.ErrorIs(t, clusterconfig.List(t.Context(), pages{err: broken}, list), broken)
}
