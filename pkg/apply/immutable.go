package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// refusal is an apply that the server called invalid because of what the object is already.
type refusal struct {
	cause  string
	fields []string
	remedy string
	text   string
	err    error
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) Unwrap() error { return r.err }

// cause is one thing that the server says is wrong with an object.
type cause struct {
	field  string
	kind   metav1.CauseType
	detail string // without the value, which may be the whole of a pod template
}

// nodePortTwice is what the server says of two ports of a Service with one node port. It does not call that invalid.
var nodePortTwice = regexp.MustCompile(`duplicate nodePort: \{(\w+) (\d+)\}`)

// isRefusal reports whether the server does not take the object as it would become.
func isRefusal(err error) bool { return len(causes(err)) > 0 || apierrors.IsInvalid(err) }

// causes returns what the server says is wrong with an object, once each; nil for other errors.
func causes(err error) []cause {
	if apierrors.IsInternalError(err) && nodePortTwice.MatchString(err.Error()) {
		return []cause{{field: "spec.ports", kind: metav1.CauseTypeFieldValueDuplicate, detail: err.Error()}}
	}
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var list []cause
	for _, c := range status.Status().Details.Causes {
		next := cause{field: c.Field, kind: c.Type, detail: detail(c.Message)}
		if next.field == "<nil>" { // of no field: some rules of a custom resource could not be evaluated
			next.field = ""
		}
		if !slices.Contains(list, next) {
			list = append(list, next)
		}
	}
	return list
}

// detail returns what a message says about a value. Messages begin with a class and, in JSON, with the value:
// `Invalid value: {"a":1}: field is immutable`; longer ones go on with a difference, line by line.
func detail(message string) string {
	class, rest, ok := strings.Cut(message, ": ")
	if !ok {
		return firstLine(message)
	}
	switch class {
	case "Invalid value", "Unsupported value", "Duplicate value", "Not found":
		decoder := json.NewDecoder(strings.NewReader(rest))
		var value json.RawMessage
		if decoder.Decode(&value) == nil {
			if after, ok := strings.CutPrefix(rest[decoder.InputOffset():], ": "); ok {
				rest = after
			}
		}
	case "Forbidden", "Too long", "Required value":
	default:
		rest = message
	}
	return firstLine(rest)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimRight(line, " .")
}

// immutability matches what a server says of a field that it does not let anybody change. Not one error has a code or a
// reason of its own for that. Seen from kube-apiserver 1.36:
//
//	field is immutable                        selectors of Deployments, DaemonSets and ReplicaSets; template, selector,
//	                                          completions, completionMode and failure policy of Jobs; StorageClasses;
//	                                          CSIDrivers; type of Secrets; preemptionPolicy of PriorityClasses; handler of
//	                                          RuntimeClasses; controller of IngressClasses; addressType of EndpointSlices;
//	                                          group, scope and names of CRDs
//	field is immutable when `immutable` is set    data of ConfigMaps and Secrets, and `immutable` itself
//	cannot change roleRef                     RoleBindings, ClusterRoleBindings
//	may not change once set                   clusterIP and loadBalancerClass of Services
//	may not be changed in an update           value of PriorityClasses
//	updates to statefulset spec for fields other than … are forbidden
//	spec is immutable after creation except …     PersistentVolumeClaims, and the source of PersistentVolumes
//	pod updates may not change fields other than …
//	failed rule: self == oldSelf              custom resources with a transition rule that has no message of its own
//
// Transition rules of custom resources say what their authors wrote; the words below are those commonly used.
var immutability = regexp.MustCompile(`(?i)\bimmutable\b|cannot change roleRef` +
	`|(may|can|must|should) ?not (be )?(change|modif|update)` +
	`|updates to .+ are forbidden|\bunchangeable\b|\boldSelf\b`)

// immutable returns the fields of a refused apply that cannot be changed, sorted, and what the server says of the first
// one. It is nil if the object is invalid for other reasons alone.
func immutable(list []cause) (fields []string, says string) {
	for _, c := range list {
		if (c.kind != metav1.CauseTypeFieldValueInvalid && c.kind != metav1.CauseTypeForbidden) || !immutability.MatchString(c.detail) {
			continue
		}
		fields = append(fields, c.field)
		if says == "" {
			says = c.detail
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields), says
}

// summary tells what is wrong with an invalid object, without the values that the server repeats.
func summary(err error) string {
	list := causes(err)
	if len(list) == 0 {
		return err.Error()
	}
	texts := make([]string, len(list))
	for i, c := range list {
		if texts[i] = c.detail; c.field != "" {
			texts[i] = c.field + ": " + c.detail
		}
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

// refused finds a way for an apply that the server calls invalid. A field that cannot be changed needs a new object; what
// does not go with the manifest can be taken and removed.
func (s *sending) refused(ctx context.Context, refused error) (Change, answer, error) {
	if fields, says := immutable(causes(refused)); len(fields) > 0 {
		return s.unchangeable(ctx, refused, fields, says)
	}
	got, err := s.takeOver(ctx, refused)
	if err == nil {
		return s.receipt(got), got, nil
	}
	if !isRefusal(err) {
		return Change{}, answer{}, err
	}
	if fields, says := immutable(causes(err)); len(fields) > 0 {
		return s.unchangeable(ctx, err, fields, says)
	}
	if s.m.Recreated() {
		return s.recreate(ctx, err, "the object there cannot become what its manifest says: "+summary(err))
	}
	return Change{}, answer{}, err
}

// unchangeable recreates an object if it may, and else says what to do.
func (s *sending) unchangeable(ctx context.Context, refused error, fields []string, says string) (Change, answer, error) {
	fields, err := s.narrowed(ctx, fields, says)
	if err != nil {
		return Change{}, answer{}, err
	}
	why := fmt.Sprintf("%s cannot be changed: %s", strings.Join(fields, ", "), says)
	r := &refusal{cause: "the object that is there cannot become this one", fields: fields, text: why, err: refused}
	switch {
	case s.m.NeverRecreated():
		r.remedy = fmt.Sprintf("a %s is never deleted for that: take the change back, or give the object a new name", s.m.GVK().Kind)
		return Change{}, answer{}, r
	case s.m.Recreated():
		return s.recreate(ctx, refused, why)
	}
	r.remedy = fmt.Sprintf("annotate the manifest with %s: %s to have the object deleted and created again, or give it a new name",
		api.OnImmutableAnnotation, manifest.RecreateValue)
	if isJob(s.m) {
		failed, err := s.jobFailed(ctx)
		if err != nil {
			return Change{}, answer{}, err
		}
		if failed {
			return s.recreate(ctx, refused, "it failed, and "+why)
		}
		r.remedy = fmt.Sprintf("give the Job a new name, or annotate the manifest with %s: %s to have it deleted and run again",
			api.OnImmutableAnnotation, manifest.RecreateValue)
	}
	return Change{}, answer{}, r
}

// narrowed names the fields below one that the server refuses as a whole, such as the spec of a StatefulSet: those whose
// values differ from what is there, and which the server does not name as the ones that may be changed.
func (s *sending) narrowed(ctx context.Context, fields []string, says string) ([]string, error) {
	if len(fields) != 1 || fields[0] != "spec" {
		return fields, nil
	}
	var live unstructured.Unstructured
	if err := s.applier.client.object(ctx, s.target, &live); err != nil {
		if apierrors.IsNotFound(err) {
			return fields, nil
		}
		return nil, err
	}
	want, _ := s.body["spec"].(map[string]any)
	have, _ := live.Object["spec"].(map[string]any)
	var narrow []string
	for field, value := range want {
		if !strings.Contains(says, "'"+field+"'") && !covers(have[field], value) {
			narrow = append(narrow, "spec."+field)
		}
	}
	if len(narrow) == 0 { // it is left out now
		return fields, nil
	}
	slices.Sort(narrow)
	return narrow, nil
}

// covers reports whether an object has everything that is wanted of it. Lists have to be as long.
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
