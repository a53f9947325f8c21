package failure

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Diagnosis explains an apply that failed because of the existing object, an admission policy for it or an earlier release.
type Diagnosis struct {
	// Cause, Fields and Remedy have the same meaning as in Error.
	Cause  string
	Fields []string
	Remedy string
	// Text describes the rejection without the values that the server repeats.
	Text string
	Err  error
}

func (d *Diagnosis) Error() string { return d.Text }

func (d *Diagnosis) Unwrap() error { return d.Err }

// Cause is one of the errors that the server reports for an object.
type Cause struct {
	Field  string
	Kind   metav1.CauseType
	Detail string // without the value, which may be a whole pod template
}

// Causes returns the server's errors for an object without duplicates, or nil for other errors.
func Causes(err error) []Cause {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var list []Cause
	for _, c := range status.Status().Details.Causes {
		next := Cause{Field: c.Field, Kind: c.Type, Detail: detail(c.Message)}
		if next.Field == "<nil>" { // no field: some rules of a custom resource could not be evaluated
			next.Field = ""
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

// Summary describes why an object is invalid, without the values that the server repeats.
func Summary(err error) string {
	list := Causes(err)
	if len(list) == 0 {
		return err.Error()
	}
	texts := make([]string, len(list))
	for i, c := range list {
		if texts[i] = c.Detail; c.Field != "" {
			texts[i] = c.Field + ": " + c.Detail
		}
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}
