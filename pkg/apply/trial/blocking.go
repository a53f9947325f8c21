package trial

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/overlay"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
)

// ErrNothingBlocks means that no value outside the manifest makes the server reject the object.
var ErrNothingBlocks = errors.New("no value blocks the apply")

// rounds limits how often the server may reject the object for new reasons.
const rounds = 4

// maxNear limits the number of values around a rejected field that are examined one by one.
const maxNear = 16

// Blocking finds the values that the server does not accept together with the body. entries are the managedFields of the live object, from
// which it adopts fields of former managers. It returns the values and the object that the server accepts without them. If there are none,
// the error is ErrNothingBlocks.
func (t Trial) Blocking(ctx context.Context, live *unstructured.Unstructured, entries []metav1.ManagedFieldsEntry, refused error,
) ([]overlay.Value, *unstructured.Unstructured, error) {
	entries, adopted := ownership.Adopt(t.GVK, entries)
	live = live.DeepCopy()
	live.SetManagedFields(entries)
	var found []overlay.Value
	last := refused
	for range rounds {
		values := t.overlaid(live, found).Named(rejections(last))
		if len(values) == 0 && !adopted {
			break
		}
		adopted = false
		object, err := t.without(ctx, live, append(slices.Clone(found), values...))
		if err == nil || !apierrors.IsInvalid(err) {
			return append(found, values...), object, err
		}
		if len(values) > 0 && isSame(err, last) {
			break
		}
		found, last = append(found, values...), err
	}
	near := t.overlaid(live, found).Near(rejections(last))
	near = near[:min(len(near), maxNear)]
	if len(near) == 0 {
		return nil, nil, ErrNothingBlocks
	}
	object, err := t.without(ctx, live, append(slices.Clone(found), near...))
	if apierrors.IsInvalid(err) {
		return nil, nil, ErrNothingBlocks
	}
	for i := len(near) - 1; i >= 0 && err == nil; i-- { // keep values that the server accepts
		fewer := slices.Delete(slices.Clone(near), i, i+1)
		less, rejection := t.without(ctx, live, append(slices.Clone(found), fewer...))
		if rejection == nil {
			near, object = fewer, less
		} else if !apierrors.IsInvalid(rejection) {
			err = rejection
		}
	}
	return append(found, near...), object, err
}

// rejections returns the rejected fields with the classes of their errors.
func rejections(err error) []overlay.Rejection {
	var list []overlay.Rejection
	for _, c := range failure.Causes(err) {
		list = append(list, overlay.Rejection{Field: c.Field, Type: c.Kind})
	}
	return list
}

// isSame reports whether two rejections concern the same fields for the same reasons.
func isSame(a, b error) bool {
	order := func(a, b overlay.Rejection) int {
		return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(string(a.Type), string(b.Type)))
	}
	return slices.Equal(slices.SortedFunc(slices.Values(rejections(a)), order), slices.SortedFunc(slices.Values(rejections(b)), order))
}
