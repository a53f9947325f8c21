// Package failure describes why the API server did not apply an object: the class of the error, the rejected fields and the remedy. It
// takes errors of requests and sends nothing. docs/adr/0022-texts-of-the-server.md lists the texts of errors that decide.
package failure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Error is the failure to apply a manifest, with its class.
type Error struct {
	// Manifest is the manifest that failed.
	Manifest *manifest.Manifest
	// Reason is one of the UpdatePayload… reasons in package api.
	Reason string
	// Cause explains the class; empty if the class is unknown.
	Cause string
	// Fields lists the fields that the server rejected as invalid, sorted; nil if it named none.
	Fields []string
	// Remedy is an instruction: the change to make and its place; empty if unknown.
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

// ErrRetrieval means that the apply needs an earlier release, and no request to the API server failed.
var ErrRetrieval = errors.New("an earlier release cannot be read")

// Exclude is the remedy for an object that the cluster does not need.
const Exclude = "exclude the object with an override (spec.overrides in the ClusterVersion)"

// Wrap returns the error about a manifest as an *Error; nil stays nil.
func Wrap(m *manifest.Manifest, err error) error {
	if err == nil {
		return nil
	}
	reason, cause := classify(err)
	e := &Error{Manifest: m, Reason: reason, Cause: cause, Err: err}
	if r, ok := errors.AsType[*Diagnosis](err); ok {
		e.Cause, e.Fields, e.Remedy = r.Cause, r.Fields, r.Remedy
		return e
	}
	if match := failedWebhook.FindStringSubmatch(err.Error()); match != nil {
		e.Remedy = fmt.Sprintf("repair the service behind webhook %s, or remove the webhook from its ValidatingWebhookConfiguration or MutatingWebhookConfiguration", match[1])
	}
	e.Fields = unconvertible(err)
	switch {
	case e.Remedy != "":
	case IsWebhookConversion(err):
		e.Remedy = "repair the conversion webhook in the kind's CustomResourceDefinition, or the service behind it"
	case IsUnreadable(err):
		e.Remedy = "the server cannot read the existing object in the manifest's API version: correct or remove the named value in the object"
	case IsConversion(err):
		e.Remedy = "the server cannot convert the object to the API versions in its managedFields: repair the conversion in the kind's CustomResourceDefinition"
		if len(e.Fields) > 0 {
			e.Remedy += fmt.Sprintf(", or keep the fields in all versions that it serves (%s)", strings.Join(e.Fields, ", "))
		}
	}
	if e.Reason == api.ReasonResourceInvalid && e.Remedy == "" && DeniedBy(err) == "" {
		e.Remedy = "correct the release's manifest, which the API server rejects, or " + Exclude
	}
	for _, c := range Causes(err) {
		if c.Field != "" && !slices.Contains(e.Fields, c.Field) {
			e.Fields = append(e.Fields, c.Field)
		}
	}
	slices.Sort(e.Fields)
	return e
}

// failedWebhook matches the server's error if it could not call a webhook whose failurePolicy is Fail.
var failedWebhook = regexp.MustCompile(`failed calling webhook "([^"]+)"`)

var (
	// namedWebhook matches the server's error if a webhook did not respond or rejected the object.
	namedWebhook = regexp.MustCompile(`(?:failed calling|admission) webhook "[^"]+"`)
	// webhookService matches the URL at which a server calls the service of an admission or conversion webhook.
	webhookService = regexp.MustCompile(`https://([a-z0-9-]+)\.([a-z0-9-]+)\.svc[:/?"]`)
)

// Webhook reports whether an error names an admission webhook. It also returns the service that the server could not call, or zero if there
// is none.
func Webhook(err error) (named bool, service types.NamespacedName) {
	text := err.Error()
	if match := webhookService.FindStringSubmatch(text); match != nil {
		service = types.NamespacedName{Namespace: match[2], Name: match[1]}
	}
	return namedWebhook.MatchString(text), service
}

// refuser matches the part of the server's error that names what denied a request.
var refuser = regexp.MustCompile(`admission webhook "[^"]+"|ValidatingAdmissionPolicy '[^']+'`)

// DeniedBy returns the admission webhook or policy that denied a request, or "" if the server names none.
func DeniedBy(err error) string { return refuser.FindString(err.Error()) }

// IsDeniedByPolicy reports whether a ValidatingAdmissionPolicy denied a request.
func IsDeniedByPolicy(err error) bool {
	return strings.HasPrefix(DeniedBy(err), "ValidatingAdmissionPolicy")
}

// IsDenied reports whether a permission, an admission webhook or a policy denied a request, or the API server's validation rejected it.
func IsDenied(err error) bool {
	return DeniedBy(err) != "" || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
}

// IsUnavailable reports whether a request failed because the server, or a webhook that it called, did not respond. The manifest is not the
// cause. The error disappears when they are back, and no event announces that.
func IsUnavailable(err error) bool {
	failed, ok := errors.AsType[*Error](err)
	return ok && (failed.Reason == api.ReasonClusterDown || failedWebhook.MatchString(failed.Err.Error()))
}

// classify uses the classes of OpenShift's operator, because alerts and support tools know their reasons. A canceled request says nothing
// about the cluster, but a timeout does.
func classify(err error) (reason, cause string) {
	switch {
	case errors.Is(err, ErrRetrieval):
		return api.ReasonPayloadRetrievalFailed, ErrRetrieval.Error()
	case kinds.IsNoMatch(err), errors.Is(err, kinds.ErrUnavailable), errors.Is(err, request.ErrUnserved):
		return api.ReasonResourceTypeMissing, "the server does not recognize this resource, check extension API servers"
	case IsManifestError(err), IsUnreadable(err), IsConversion(err), IsWebhookConversion(err):
		return api.ReasonResourceInvalid, "the object is invalid, possibly due to local cluster configuration"
	case errors.Is(err, request.ErrAnswer), errors.Is(err, context.Canceled):
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
	case !errors.As(err, &status): // there was no response
		return api.ReasonClusterDown, "the server is down or not responding"
	case status.Status().Code == http.StatusInternalServerError:
		return api.ReasonClusterError, "the server is reporting an internal error"
	}
	return api.ReasonPayloadFailed, ""
}

// Explain describes an error without the object's identity. It omits the values that a server repeats for an invalid object, which may be a
// whole pod template.
func Explain(err error) string {
	if failed, ok := errors.AsType[*Error](err); ok {
		err = failed.Err
	}
	if r, ok := errors.AsType[*Diagnosis](err); ok {
		return r.Text
	}
	if apierrors.IsInvalid(err) {
		return Summary(err)
	}
	return err.Error()
}

// IsManifestError reports whether the manifest itself causes the error, because it cannot be sent or does not match the schema.
func IsManifestError(err error) bool {
	return errors.Is(err, body.ErrManifest) || IsBodyMismatch(err) || contains(err, conversionError) && !IsUnreadable(err)
}
