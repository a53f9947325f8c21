package refused_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cluster-version/cvo/pkg/clusterversion/refused"
)

func invalidStatus(paths ...string) error {
	var list field.ErrorList
	for _, path := range paths {
		list = append(list, field.Invalid(field.NewPath(path), "x", "no"))
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: "config.openshift.io", Kind: "ClusterVersion"}, "version", list)
}

func TestRejectedFieldsAreFoundInErrors(t *testing.T) {
	assert.Equal(t, []string{"capabilities", "conditions[3]", "history"},
		refused.Fields(invalidStatus("status.history[0].state", "status.conditions[3].Reason", "status.capabilities.knownCapabilities[17]", "status.history", "metadata.name")))
	assert.Empty(t, refused.Fields(invalidStatus()))
	updates := []string{"availableUpdates", "conditionalUpdateRisks", "conditionalUpdates"}
	assert.Equal(t, updates, refused.Fields(apierrors.NewRequestEntityTooLargeError("")))
}

//threat:risks-too-many
func TestRejectionsAreRecognized(t *testing.T) {
	answer := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}}
	}
	const etcd = "etcdserver: request is too large"
	for _, tt := range []struct {
		err               error
		rejects, tooLarge bool
	}{
		{nil, false, false},
		{errors.New("no"), false, false},
		{apierrors.NewConflict(schema.GroupResource{}, "version", nil), false, false},
		{invalidStatus("status.history"), true, false},
		{answer(http.StatusUnprocessableEntity, "the condition reports: "+etcd), true, false},
		{apierrors.NewRequestEntityTooLargeError("limit is 3145728"), true, true},
		{answer(http.StatusInternalServerError, etcd), true, true},
		{answer(http.StatusInternalServerError, "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097230 vs. 2097152)"), true, true},
		{fmt.Errorf("writing: %w", answer(http.StatusInternalServerError, etcd)), true, true},
		{answer(http.StatusInternalServerError, "etcdserver: request timed out"), false, false},
		{answer(http.StatusInternalServerError, "etcdserver: mvcc: database space exceeded"), false, false},
		{apierrors.NewTimeoutError("overloaded", 1), false, false},
		{apierrors.NewServiceUnavailable("overloaded"), false, false},
		{apierrors.NewTooManyRequestsError("overloaded"), false, false},
	} {
		assert.Equal(t, tt.rejects, refused.Is(tt.err), "%v", tt.err)
		assert.Equal(t, tt.tooLarge, refused.IsTooLarge(tt.err), "%v", tt.err)
	}
}

func TestReduceRestoresRejectedFields(t *testing.T) {
	condition := func(kind configv1.ClusterStatusConditionType, message string) configv1.ClusterOperatorStatusCondition {
		return configv1.ClusterOperatorStatusCondition{Type: kind, Message: message}
	}
	before := configv1.ClusterVersionStatus{VersionHash: "old", Conditions: []configv1.ClusterOperatorStatusCondition{condition("a", "old")}}
	status := configv1.ClusterVersionStatus{
		VersionHash: "new", History: []configv1.UpdateHistory{{Version: "4.1.2"}, {Version: "4.1.1"}}, Desired: configv1.Release{Version: "1"}, ObservedGeneration: 2,
		Conditions: []configv1.ClusterOperatorStatusCondition{condition("a", "new"), condition("b", "new"), condition("c", "new")},
	}
	assert.Equal(t, status, refused.Reduce(before, status, nil))
	got := refused.Reduce(before, status, []string{"history", "conditions[0]", "conditions[1]", "conditions[9]"})
	assert.Empty(t, got.History)
	assert.Equal(t, "new", got.VersionHash)
	assert.Equal(t, []configv1.ClusterOperatorStatusCondition{condition("a", "old"), condition("c", "new")}, got.Conditions, "a condition keeps its index")

	fields := refused.Lasting([]string{"history", "conditions[1]", "conditions[9]"}, status)
	assert.Equal(t, []string{"history", "condition b", "conditions[9]"}, fields)
	status.Conditions = append([]configv1.ClusterOperatorStatusCondition{condition("z", "new")}, status.Conditions...)
	got = refused.Reduce(before, status, fields)
	assert.Equal(t, []configv1.ClusterOperatorStatusCondition{condition("z", "new"), condition("a", "new"), condition("c", "new")}, got.Conditions,
		"the same condition, whatever its index is now")
	status.Conditions = status.Conditions[1:]
	least := refused.Reduce(before, status, refused.AllButConditions())
	assert.Equal(t, configv1.ClusterVersionStatus{VersionHash: "old", ObservedGeneration: 2, Conditions: status.Conditions}, least)
	assert.Equal(t, before.Conditions, refused.Reduce(before, least, []string{"conditions"}).Conditions)
}
