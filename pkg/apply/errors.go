package apply

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Error says which manifest could not be applied and in which class the failure falls.
type Error struct {
	// Manifest is the one that failed.
	Manifest *manifest.Manifest
	// Reason is one of the UpdatePayload… reasons of package api.
	Reason string
	// Cause explains the class in words; empty where the class is unknown.
	Cause string
	// Fields are those that the server calls invalid, sorted; nil if it names none.
	Fields []string
	// Remedy says what to change, and where; empty where that is not known.
	Remedy string
	Err    error
}

func (e *Error) Error() string {
	cause := ""
	if e.Cause != "" {
		cause = e.Cause + ": "
	}
	remedy := ""
	if e.Remedy != "" {
		remedy = "; " + e.Remedy
	}
	return fmt.Sprintf("could not update %s (%s): %s%v%s", e.Manifest.ID(), e.Manifest.File, cause, e.Err, remedy)
}

func (e *Error) Unwrap() error { return e.Err }

func wrap(m *manifest.Manifest, err error) error {
	if err == nil {
		return nil
	}
	reason, cause := classify(err)
	e := &Error{Manifest: m, Reason: reason, Cause: cause, Err: err}
	if r, ok := errors.AsType[*refusal](err); ok {
		e.Reason, e.Cause, e.Fields, e.Remedy = api.ReasonResourceInvalid, r.cause, r.fields, r.remedy
		return e
	}
	if match := unaskedWebhook.FindStringSubmatch(err.Error()); match != nil {
		e.Remedy = fmt.Sprintf("repair the service behind webhook %s, or remove that webhook from its ValidatingWebhookConfiguration or MutatingWebhookConfiguration", match[1])
	}
	for _, c := range causes(err) {
		if c.field != "" && !slices.Contains(e.Fields, c.field) {
			e.Fields = append(e.Fields, c.field)
		}
	}
	slices.Sort(e.Fields)
	return e
}

var (
	// errManifest marks failures that the manifest alone explains.
	errManifest = errors.New("the manifest cannot be sent")
	// errAnswer marks answers that cannot be read.
	errAnswer = errors.New("reading the server's answer")
)

// unaskedWebhook is in what a server says that could not ask a webhook whose failurePolicy is Fail.
var unaskedWebhook = regexp.MustCompile(`failed calling webhook "([^"]+)"`)

// IsAway reports whether a request failed because nobody answered it, be it the server or a webhook that the server had to
// ask. It is none of the manifest's fault, and over as soon as they are back, which no event tells.
func IsAway(err error) bool {
	failure, ok := errors.AsType[*Error](err)
	return ok && (failure.Reason == api.ReasonClusterDown || unaskedWebhook.MatchString(failure.Err.Error()))
}

// IsNoMatch reports whether the server does not know the object's kind.
func IsNoMatch(err error) bool { return meta.IsNoMatchError(err) || errors.Is(err, ErrNoMatch) }

// classify follows the classes of OpenShift's operator, whose reasons alerts and support tools know. A cancelled
// request says nothing about the cluster, one that ran out of time does.
func classify(err error) (reason, cause string) {
	switch {
	case IsNoMatch(err), errors.Is(err, ErrUnavailable):
		return api.ReasonResourceTypeMissing, "the server does not recognize this resource, check extension API servers"
	case errors.Is(err, errManifest), isTypeError(err):
		return api.ReasonResourceInvalid, "the object is invalid, possibly due to local cluster configuration"
	case errors.Is(err, errAnswer), errors.Is(err, context.Canceled):
		return api.ReasonPayloadFailed, ""
	}
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonNotFound, metav1.StatusReasonAlreadyExists:
		return api.ReasonResourceNotFound, "resource may have been deleted"
	case metav1.StatusReasonConflict:
		return api.ReasonResourceConflict, "someone else is updating this resource"
	case metav1.StatusReasonTimeout, metav1.StatusReasonServiceUnavailable:
		return api.ReasonClusterDown, "the server is down or not responding"
	case metav1.StatusReasonInternalError:
		return api.ReasonClusterError, "the server is reporting an internal error"
	case metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest:
		return api.ReasonResourceInvalid, "the object is invalid, possibly due to local cluster configuration"
	case metav1.StatusReasonUnauthorized:
		return api.ReasonClusterUnauthorized, "could not authenticate to the server"
	case metav1.StatusReasonForbidden:
		return api.ReasonResourceForbidden, "the server has forbidden updates to this resource"
	case metav1.StatusReasonServerTimeout, metav1.StatusReasonTooManyRequests:
		return api.ReasonClusterOverloaded, "the server is overloaded and is not accepting updates"
	}
	var status apierrors.APIStatus
	switch {
	case !errors.As(err, &status): // nobody answered
		return api.ReasonClusterDown, "the server is down or not responding"
	case status.Status().Code == http.StatusInternalServerError:
		return api.ReasonClusterError, "the server is reporting an internal error"
	}
	return api.ReasonPayloadFailed, ""
}
