package drain_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/node/drain"
)

func TestReadClassifiesAnswers(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	caused := func(err *apierrors.StatusError, kind metav1.CauseType, message string) error {
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: kind, Message: message}}
		return err
	}
	const needs = "The disruption budget web needs 2 healthy pods and has 2 currently"
	for _, tt := range []struct {
		name string
		err  error
		want drain.Answer
	}{
		{"recognizes a success", nil, drain.Answer{Meaning: drain.Accepted}},
		{"recognizes a deleted pod", apierrors.NewNotFound(pods, "web-1"), drain.Answer{Meaning: drain.Gone}},
		{"recognizes another pod of the same name", apierrors.NewConflict(pods, "web-1", errors.New("the UID differs")), drain.Answer{Meaning: drain.Gone}},
		{
			"recognizes the refusal of a budget", caused(apierrors.NewTooManyRequests("Cannot evict pod", 0), policyv1.DisruptionBudgetCause, needs),
			drain.Answer{Meaning: drain.Budget, Message: needs},
		},
		{
			"reads the delay if the budget's controller is late", caused(apierrors.NewTooManyRequests("Cannot evict pod", 10), policyv1.DisruptionBudgetCause, needs),
			drain.Answer{Meaning: drain.Budget, Message: needs, After: 10 * time.Second},
		},
		{
			"reads the delay of a busy server", apierrors.NewTooManyRequests("too many requests", 1),
			drain.Answer{Meaning: drain.Busy, Message: "too many requests", After: time.Second},
		},
		{
			"reports a pod of two budgets as refused", apierrors.NewInternalError(errors.New("more than one PodDisruptionBudget")),
			drain.Answer{Meaning: drain.Refused, Message: "Internal error occurred: more than one PodDisruptionBudget"},
		},
		{
			"knows that a server that is not ready has not decided", apierrors.NewServiceUnavailable("starting"),
			drain.Answer{Meaning: drain.Refused, Message: "starting", IsUnknown: true},
		},
		{
			"knows that a server that cannot be reached has not decided", errors.New("connection refused"),
			drain.Answer{Meaning: drain.Refused, Message: "connection refused", IsUnknown: true},
		},
		{
			"explains that the namespace is being deleted", caused(apierrors.NewForbidden(pods, "web-1", errors.New("terminating")), corev1.NamespaceTerminatingCause, ""),
			drain.Answer{Meaning: drain.Refused, Message: "its namespace is being deleted"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, drain.Read(tt.err)) })
	}
}

func TestBudgetsAreNamed(t *testing.T) {
	const stays = "Pod shop/web-1 stays: "
	for text, want := range map[string]bool{
		stays + "The disruption budget web needs 2 healthy pods and has 2 currently (and 1 other pod)": true,
		stays + "The disruption budget web is still being processed by the server.":                    true,
		stays + "The disruption budget web-db needs 2 healthy pods and has 2 currently":                false,
		stays + `admission webhook "web.example.com" denied the request`:                               false,
		"": false,
	} {
		assert.Equal(t, want, drain.NamesBudget(text, "web"), text)
	}
}
