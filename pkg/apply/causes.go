package apply

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/apply/overlay"
)

// refusal is the rejection of an apply as invalid because of the existing object.
type refusal struct {
	cause  string
	fields []string
	remedy string
	text   string
	err    error
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) Unwrap() error { return r.err }

// cause is one of the errors that the server reports for an object.
type cause struct {
	field  string
	kind   metav1.CauseType
	detail string // without the value, which may be a whole pod template
}

// isRefusal reports whether the server rejected the resulting object.
func isRefusal(err error) bool { return apierrors.IsInvalid(err) }

// causes returns the server's errors for an object without duplicates, or nil for other errors.
func causes(err error) []cause {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var list []cause
	for _, c := range status.Status().Details.Causes {
		next := cause{field: c.Field, kind: c.Type, detail: detail(c.Message)}
		if next.field == "<nil>" { // no field: some rules of a custom resource could not be evaluated
			next.field = ""
		}
		if !slices.Contains(list, next) {
			list = append(list, next)
		}
	}
	return list
}

// detail returns the part of a message that describes the error. Messages begin with a class and, in JSON, the value:
// `Invalid value: {"a":1}: field is immutable`. Some continue with a diff on further lines.
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

// rejections returns the rejected fields with the classes of their errors.
func rejections(err error) []overlay.Rejection {
	var list []overlay.Rejection
	for _, c := range causes(err) {
		list = append(list, overlay.Rejection{Field: c.field, Type: c.kind})
	}
	return list
}

// isSameRefusal reports whether two rejections concern the same fields for the same reasons.
func isSameRefusal(a, b error) bool {
	order := func(a, b overlay.Rejection) int {
		return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(string(a.Type), string(b.Type)))
	}
	return slices.Equal(slices.SortedFunc(slices.Values(rejections(a)), order), slices.SortedFunc(slices.Values(rejections(b)), order))
}

// summary describes why an object is invalid, without the values that the server repeats.
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
