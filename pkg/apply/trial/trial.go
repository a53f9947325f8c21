// Package trial finds out by dry runs, which store nothing, why the API server rejects a manifest: as a new object, because of values of other
// writers, or because it would change an immutable field. It takes the body of the manifest, the live object and the rejection, and returns
// the values that contradict the manifest or an error for the administrator.
package trial

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/apply/overlay"
	"github.com/cluster-version/cvo/pkg/apply/request"
)

// Trial examines one body.
type Trial struct {
	Client *request.Client
	// Target is the address of the object, and GVK its kind in the API version of the body.
	Target request.Target
	GVK    schema.GroupVersionKind
	// Body is the object that the operator applies.
	Body map[string]any
}

// Judgment is the server's judgment of a body as a new object.
type Judgment string

const (
	// Accepted means that the server would create the object.
	Accepted Judgment = "Accepted"
	// Rejected means that the body is invalid, whatever the live object is.
	Rejected Judgment = "Rejected"
	// Undetermined means that the operator may create the object only under its own name, by an apply. It may create objects under other
	// names if the manifest allows recreating this one (package permission).
	Undetermined Judgment = "Undetermined"
)

// NewObject asks the server in a dry run with a generated name whether it would accept the body as a new object. If the server rejects
// that as invalid, a dry run with the object's own name decides, because some kinds have fixed names, and the server validates a new object
// before it notices that the object exists.
func (t Trial) NewObject(ctx context.Context, live *unstructured.Unstructured) (Judgment, error) {
	for _, object := range bodies(t.GVK.GroupKind(), t.Body, live) {
		err := t.Client.Check(ctx, t.Target, object)
		switch {
		case err == nil, apierrors.IsAlreadyExists(err):
			return Accepted, nil
		case apierrors.IsForbidden(err):
			return Undetermined, nil
		case !apierrors.IsInvalid(err):
			return "", fmt.Errorf("checking whether it can be recreated: %w", err)
		}
	}
	return Rejected, nil
}

// overlaid returns the overlay of the body on the live object without some of the object's values.
func (t Trial) overlaid(live *unstructured.Unstructured, values []overlay.Value) *overlay.Overlay {
	rest := &unstructured.Unstructured{Object: live.Object}
	for _, v := range values {
		rest.Object, _ = overlay.Without(rest.Object, v.Path).(map[string]any)
	}
	return overlay.Lay(t.GVK, t.Body, rest)
}

// without checks whether the server accepts the object without some of the live object's values.
func (t Trial) without(ctx context.Context, live *unstructured.Unstructured, values []overlay.Value) (*unstructured.Unstructured, error) {
	return t.Client.DryUpdate(ctx, t.Target, t.overlaid(live, values).Object())
}
