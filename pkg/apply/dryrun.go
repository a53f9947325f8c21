package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/ownership"
	"github.com/cluster-version/cvo/pkg/release"
)

// Foretold is what Apply would make of one object.
type Foretold struct {
	// Action is Created, Applied (the object is there; whether anything would change shows in Object), Recreated, Kept,
	// Deleted (there is nothing to delete), Deleting (there is) or Skipped.
	Action Action
	// Object is the whole object as the server would store it; for Kept and Deleting what is there already, as far as
	// that was read; else nil.
	Object *unstructured.Unstructured
	// Dropped: as in Change.
	Dropped []string
	// Message: as in Change.
	Message string
}

// Foretell asks the server what Apply would do, by requests that are the same but for dryRun=All: admission, schema and
// validation have their say, and nothing is stored. What Apply does in several steps it cannot foretell to the end, since
// each needs what the one before has stored: the fields of former managers that adoption removes are still in Object, and
// a recreated object is there only as far as the server would take it as a new one. Errors are those of Apply.
func (a *Applier) Foretell(ctx context.Context, m *manifest.Manifest, mode release.Mode) (Foretold, error) {
	target, err := a.target(ctx, m)
	if err != nil {
		if m.Tombstone() && IsNoMatch(err) {
			return Foretold{Action: Deleted, Message: "its kind is not served"}, nil
		}
		return Foretold{}, wrap(m, err)
	}
	var f Foretold
	switch {
	case m.Tombstone() && mode == release.Initializing:
		return Foretold{Action: Skipped, Message: "tombstones delete nothing during an install"}, nil
	case m.Tombstone():
		f, err = a.foretellRemove(ctx, target, m)
	case m.CreateOnly():
		f, err = a.foretellCreateOnly(ctx, target, m)
	default:
		f, err = a.foretellApply(ctx, target, m)
	}
	return f, wrap(m, err)
}

func (a *Applier) foretellApply(ctx context.Context, t target, m *manifest.Manifest) (Foretold, error) {
	s, err := a.sending(t, m, true)
	if err != nil {
		return Foretold{}, err
	}
	f, err := s.foretell(ctx)
	if isRefusal(err) {
		return s.foretellRefused(ctx, err)
	}
	if err != nil || !isJob(m) {
		return f, err
	}
	return s.foretellRunAgain(ctx, f)
}

// foretell is send as a dry run.
func (s *sending) foretell(ctx context.Context) (Foretold, error) {
	for {
		data, err := json.Marshal(s.body)
		if err != nil {
			return Foretold{}, fmt.Errorf("%w: %w", errManifest, err)
		}
		object, code, err := s.applier.client.dryApply(ctx, s.target, data, s.force)
		if err == nil {
			f := Foretold{Action: Applied, Object: object, Dropped: s.dropped}
			if code == http.StatusCreated {
				f.Action = Created
			}
			return f, nil
		}
		without, removed := withoutRefused(s.body, err)
		if len(removed) == 0 || len(s.dropped) >= maxDropped {
			return Foretold{}, err
		}
		s.body, s.dropped = without, append(s.dropped, removed...)
	}
}

// foretellRefused tells which way refused would find.
func (s *sending) foretellRefused(ctx context.Context, refused error) (Foretold, error) {
	if fields, says := immutable(causes(refused)); len(fields) > 0 {
		return s.foretellUnchangeable(ctx, refused, fields, says)
	}
	f, err := s.foretellTaken(ctx, refused)
	if !isRefusal(err) {
		return f, err
	}
	if fields, says := immutable(causes(err)); len(fields) > 0 {
		return s.foretellUnchangeable(ctx, err, fields, says)
	}
	if s.m.Recreated() {
		return s.foretellRecreated(ctx, err, "the object there cannot become what its manifest says: "+summary(err))
	}
	return Foretold{}, err
}

func (s *sending) foretellUnchangeable(ctx context.Context, refused error, fields []string, says string) (Foretold, error) {
	why := fmt.Sprintf("%s cannot be changed: %s", strings.Join(fields, ", "), says)
	if s.m.Recreated() {
		return s.foretellRecreated(ctx, refused, why)
	}
	if !isJob(s.m) {
		_, _, err := s.unchangeable(ctx, refused, fields, says)
		return Foretold{}, err
	}
	// Unlike unchangeable, which deletes a Job that has failed.
	failed, err := s.jobFailed(ctx)
	if err != nil {
		return Foretold{}, err
	}
	if failed {
		return s.foretellRecreated(ctx, refused, "it failed, and "+why)
	}
	return Foretold{}, &refusal{
		cause: "the object that is there cannot become this one", fields: fields, text: why, err: refused,
		remedy: fmt.Sprintf("give the Job a new name, or annotate the manifest with %s: %s to have it deleted and run again",
			api.OnImmutableAnnotation, manifest.RecreateValue),
	}
}

func (s *sending) foretellRecreated(ctx context.Context, refused error, why string) (Foretold, error) {
	if err := s.creatable(ctx, refused); err != nil {
		return Foretold{}, err
	}
	return Foretold{Action: Recreated, Dropped: s.dropped, Message: why}, nil
}

// foretellTaken tells what takeOver would make of the object. That takes requests of which each has to be stored, so the
// outcome is put together here, and the server is asked what it makes of that as an update.
func (s *sending) foretellTaken(ctx context.Context, refused error) (Foretold, error) {
	live, err := s.look(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return Foretold{}, refused
	case err != nil:
		return Foretold{}, err
	}
	entries, adopted := ownership.Adopt(s.m.GVK(), live.GetManagedFields())
	var gone []string
	for range attempts {
		paths := lay(s.body, live).inTheWay(causes(refused))
		if len(paths) == 0 && !adopted {
			return Foretold{}, refused
		}
		for _, path := range paths {
			field, _ := held(entries, path)
			gone = append(gone, field)
			live.Object, _ = removed(live.Object, path).(map[string]any)
		}
		if adopted {
			live.SetManagedFields(entries)
			adopted = false
		}
		o := lay(s.body, live)
		object, err := s.applier.client.dryUpdate(ctx, s.target, o.merged(o.root()))
		if err == nil {
			f := Foretold{Action: Applied, Object: object, Dropped: s.dropped}
			if len(gone) > 0 {
				f.Message = strings.Join(gone, "; ") + " is removed first, since it does not go with the manifest"
			}
			return f, nil
		}
		if !isRefusal(err) {
			return Foretold{}, err
		}
		if summary(err) == summary(refused) {
			return Foretold{}, refused
		}
		refused = err
	}
	return Foretold{}, refused
}

// foretellCreateOnly looks before it asks: of what is there nothing more has to be known.
func (a *Applier) foretellCreateOnly(ctx context.Context, t target, m *manifest.Manifest) (Foretold, error) {
	object, err := a.client.getObject(ctx, t)
	if err == nil {
		return Foretold{Action: Kept, Object: object}, nil
	}
	if !apierrors.IsNotFound(err) {
		return Foretold{}, err
	}
	if !t.custom {
		return a.foretellCreate(ctx, t, m)
	}
	s, err := a.sending(t, m, false)
	if err != nil {
		return Foretold{}, err
	}
	f, err := s.foretell(ctx)
	if apierrors.IsConflict(err) {
		return Foretold{Action: Kept}, nil
	}
	return f, err
}

func (a *Applier) foretellCreate(ctx context.Context, t target, m *manifest.Manifest) (Foretold, error) {
	body, dropped, err := a.prepared(m, t.namespace != "")
	if err != nil {
		return Foretold{}, err
	}
	data, err := json.Marshal(body)
	if err != nil {
		return Foretold{}, fmt.Errorf("%w: %w", errManifest, err)
	}
	object, unknown, err := a.client.dryCreate(ctx, t, data)
	if apierrors.IsAlreadyExists(err) {
		return Foretold{Action: Kept}, nil
	}
	if err != nil {
		return Foretold{}, err
	}
	return Foretold{Action: Created, Object: object, Dropped: append(dropped, unknown...)}, nil
}

func (a *Applier) foretellRemove(ctx context.Context, t target, m *manifest.Manifest) (Foretold, error) {
	object, err := a.client.getObject(ctx, t)
	if err == nil && object.GetDeletionTimestamp() == nil {
		err = a.client.dryDelete(ctx, t, propagation(m.GVK().GroupKind()))
	}
	if apierrors.IsNotFound(err) {
		return Foretold{Action: Deleted}, nil
	}
	if err != nil {
		return Foretold{}, err
	}
	return Foretold{Action: Deleting, Object: object}, nil
}

// Explain says what is wrong, without the object's identity and without the values that a server repeats about an
// invalid object, which may be the whole of a pod template.
func Explain(err error) string {
	if failure, ok := errors.AsType[*Error](err); ok {
		err = failure.Err
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.text
	}
	if apierrors.IsInvalid(err) {
		return summary(err)
	}
	return err.Error()
}

// conversionError is in what the server says of values that the Go type of a built-in kind cannot hold, such as data of a
// Secret that is no base64. It comes with code 500 and without a reason.
const conversionError = "failed to convert new object ("

// IsManifestError reports whether the manifest alone is at fault: it cannot be sent, or does not fit the schema.
func IsManifestError(err error) bool {
	return err != nil && (errors.Is(err, errManifest) || isTypeError(err) || strings.Contains(err.Error(), conversionError))
}

// Live returns the whole object that a manifest names, as the cluster has it; nil if it is not there.
func (a *Applier) Live(ctx context.Context, m *manifest.Manifest) (*unstructured.Unstructured, error) {
	t, err := a.target(ctx, m)
	if err != nil {
		return nil, wrap(m, err)
	}
	object, err := a.client.getObject(ctx, t)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // not being there is an answer
	}
	return object, wrap(m, err)
}

// listLimit is how many objects are read by one request; CRDs are large.
const listLimit = 200

// ListOwned reads all objects of a kind that carry the label of the applier's owner and calls each with their JSON,
// without a copy: the caller decodes what it needs, when it needs it. List items may lack apiVersion and kind.
func (a *Applier) ListOwned(ctx context.Context, gvk schema.GroupVersionKind, each func(data json.RawMessage) error) error {
	mapping, err := a.mapper.Mapping(ctx, gvk)
	if err != nil {
		return err
	}
	options := metav1.ListOptions{LabelSelector: api.OwnedByLabel + "=" + a.owner.Name, Limit: listLimit}
	for {
		data, err := a.client.on(a.client.rest.Get(), target{resource: mapping.Resource}, false).
			SetHeader("Accept", runtime.ContentTypeJSON).VersionedParams(&options, metav1.ParameterCodec).DoRaw(ctx)
		if err != nil {
			return err
		}
		var page struct {
			Metadata metav1.ListMeta   `json:"metadata"`
			Items    []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return fmt.Errorf("%w: %w", errAnswer, err)
		}
		for _, item := range page.Items {
			if err := each(item); err != nil {
				return err
			}
		}
		if options.Continue = page.Metadata.Continue; options.Continue == "" {
			return nil
		}
	}
}

func (c *client) dryApply(ctx context.Context, t target, data []byte, force bool) (*unstructured.Unstructured, int, error) {
	options := metav1.PatchOptions{FieldManager: api.FieldManager, Force: &force, DryRun: []string{metav1.DryRunAll}}
	result := c.whole(c.rest.Patch(types.ApplyPatchType), t, true).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx)
	code := 0
	result.StatusCode(&code)
	object, err := wholeObject(result)
	return object, code, err
}

// dryUpdate writes under another name than ours: fields that we updated instead of applying would be taken for those of an
// earlier operator.
func (c *client) dryUpdate(ctx context.Context, t target, object any) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errManifest, err)
	}
	options := metav1.UpdateOptions{FieldManager: api.FieldManager + "-preview", DryRun: []string{metav1.DryRunAll}}
	return wholeObject(c.whole(c.rest.Put(), t, true).SetHeader("Content-Type", runtime.ContentTypeJSON).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx))
}

func (c *client) dryCreate(ctx context.Context, t target, data []byte) (object *unstructured.Unstructured, unknown []string, err error) {
	options := metav1.CreateOptions{
		FieldManager: api.FieldManager, FieldValidation: metav1.FieldValidationWarn, DryRun: []string{metav1.DryRunAll},
	}
	var warnings unknownFieldWarnings
	object, err = wholeObject(c.whole(c.rest.Post(), t, false).WarningHandlerWithContext(&warnings).
		SetHeader("Content-Type", runtime.ContentTypeJSON).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx))
	return object, warnings.paths, err
}

// dryDelete has its options in the query: the server reads them there if, and only if, there is no body.
func (c *client) dryDelete(ctx context.Context, t target, propagation metav1.DeletionPropagation) error {
	options := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}, PropagationPolicy: &propagation}
	return c.whole(c.rest.Delete(), t, true).VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Error()
}

func (c *client) getObject(ctx context.Context, t target) (*unstructured.Unstructured, error) {
	return wholeObject(c.whole(c.rest.Get(), t, true).Do(ctx))
}

// whole addresses the request and asks for the whole object as the answer.
func (c *client) whole(r *rest.Request, t target, named bool) *rest.Request {
	return c.on(r, t, named).SetHeader("Accept", runtime.ContentTypeJSON)
}

func wholeObject(result rest.Result) (*unstructured.Unstructured, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	data, _ := result.Raw() // its error is that of the result
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	return object, nil
}
