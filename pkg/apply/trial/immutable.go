package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/apply/failure"
)

// Immutable returns the fields, sorted, that the body would change although they are immutable, and the server's first reason. Otherwise it
// returns an error: the rejection, or the values of other writers that contradict the body.
//
// The server must reject the object for the same reason also without the values of other writers, unless it is being deleted. Otherwise such
// a value is the reason, or the server has changed its mind: it serves a changed definition a moment late.
func (t Trial) Immutable(ctx context.Context, live *unstructured.Unstructured, refused error) (fields []string, detail string, err error) {
	fields, detail = immutable(refused, t.GVK.GroupKind(), t.Body, live)
	if fields == nil {
		return nil, "", refused
	}
	if live.GetDeletionTimestamp() != nil {
		return fields, detail, nil
	}
	object, _ := t.overlaid(live, nil).Object().(map[string]any)
	_, err = t.Client.DryUpdate(ctx, t.Target, alone(t.Body, object))
	switch {
	case persists(refused, err):
		return fields, detail, nil
	case err == nil || apierrors.IsInvalid(err):
		if _, err := t.without(ctx, live, nil); err == nil {
			return nil, "", refused // the server has changed its mind
		}
		return nil, "", cmp.Or(Contested(refused, others(refused, t.Body, live)), refused)
	}
	return nil, "", fmt.Errorf("checking whether it cannot be changed: %w", err)
}

// immutable returns the fields, sorted, that a rejected apply of a body would change although they are immutable, and the server's first
// reason. It returns no fields if the server names none, or if an admission webhook or policy denied the apply.
func immutable(refused error, gk schema.GroupKind, body map[string]any, live *unstructured.Unstructured) (fields []string, detail string) {
	list := failure.Causes(refused)
	if len(list) == 0 || isDenial(refused) {
		return nil, ""
	}
	for _, c := range list {
		if c.Field != "" {
			fields = append(fields, c.Field)
		}
	}
	slices.Sort(fields)
	if fields = slices.Compact(fields); len(fields) == 0 || len(fields) == 1 && fields[0] == "spec" {
		fields = narrowed(gk, body, live)
	}
	return fields, list[0].Detail
}

// isDenial reports whether an admission webhook or policy rejected an object as invalid. Policies name no fields. Validation always names one, if
// only "<nil>" for the whole object.
func isDenial(refused error) bool {
	var status apierrors.APIStatus
	return failure.DeniedBy(refused) != "" || errors.As(refused, &status) &&
		!slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
}

// persists reports whether an update was rejected for one of the reasons of an earlier rejection. It ignores fields, because the position of
// a list item may differ.
func persists(refused, update error) bool {
	return slices.ContainsFunc(failure.Causes(update), func(c failure.Cause) bool {
		return slices.ContainsFunc(failure.Causes(refused), func(r failure.Cause) bool { return r.Kind == c.Kind && r.Detail == c.Detail })
	})
}

// mutable lists the fields of a spec that the server allows to change even though it rejects the spec as a whole (Kubernetes API reference,
// StatefulSetSpec).
func mutable(gk schema.GroupKind) []string {
	if gk == (schema.GroupKind{Group: "apps", Kind: "StatefulSet"}) {
		return []string{
			"minReadySeconds", "ordinals", "persistentVolumeClaimRetentionPolicy", "replicas", "revisionHistoryLimit", "template", "updateStrategy",
		}
	}
	return nil
}

// narrowed returns the changed fields of a spec that the server rejects as a whole, such as that of a StatefulSet: those whose values differ
// from the live ones.
func narrowed(gk schema.GroupKind, body map[string]any, live *unstructured.Unstructured) (fields []string) {
	want, _ := body["spec"].(map[string]any)
	have, _ := live.Object["spec"].(map[string]any)
	for field, value := range want {
		if !slices.Contains(mutable(gk), field) && !covers(have[field], value) {
			fields = append(fields, "spec."+field)
		}
	}
	if fields == nil { // the manifest no longer has the field
		return []string{"spec"}
	}
	slices.Sort(fields)
	return fields
}

// covers reports whether an object contains all wanted values. Lists must have the same length.
func covers(have, want any) bool {
	switch w := want.(type) {
	case nil:
		return true
	case map[string]any:
		h, _ := have.(map[string]any)
		for key, value := range w {
			if !covers(h[key], value) {
				return false
			}
		}
		return true
	case []any:
		h, _ := have.([]any)
		return slices.EqualFunc(h, w, covers)
	}
	return fmt.Sprint(have) == fmt.Sprint(want)
}
