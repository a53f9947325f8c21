package rollout

import (
	"fmt"
	"slices"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/drift"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// waitFor returns the verdict on an object that has to wait.
func waitFor(reason, format string, args ...any) gate.Verdict {
	return gate.Verdict{
		State: gate.Waiting, Patience: gate.UntilSlow, Reason: reason, Message: fmt.Sprintf(format, args...),
	}
}

// foreignDeletionNotice returns the verdict on an object that another client is deleting. The operator recreates the object after the
// deletion. remaining is the reason why it still exists; empty if unknown.
func foreignDeletionNotice(id manifest.ID, finalizers []string, remaining string) gate.Verdict {
	return gate.Verdict{
		State: gate.Settled, Patience: gate.Report, Reason: api.ReasonDeleting, Message: foreignDeletionText(id, finalizers, remedy(id, finalizers, remaining)),
	}
}

func foreignDeletionText(id manifest.ID, finalizers []string, remedy string) string {
	finalizerText := ""
	if len(finalizers) > 0 {
		finalizerText = " and waits for its finalizers " + api.FinalizersText(finalizers)
	}
	return fmt.Sprintf("%s is being deleted by another client%s%s; it will be recreated once it is gone", id, finalizerText, remedy)
}

// foreignDeletionWait returns the verdict on an object that another client is deleting although the release needs it. Its dependents wait
// for the end of the deletion, which may need an administrator.
func foreignDeletionWait(id manifest.ID, state *observe.State, remaining string) gate.Verdict {
	var finalizers []string
	if state != nil {
		finalizers = state.Finalizers
	}
	v := waitFor(api.ReasonDeleting, "%s", foreignDeletionText(id, finalizers, remedy(id, finalizers, remaining)))
	v.Patience = gate.None
	return v
}

func remedy(id manifest.ID, finalizers []string, remaining string) string {
	switch {
	case slices.Contains(finalizers, definitionCleanup):
		return " (its objects are deleted first; check for remaining objects and their finalizers)"
	case remaining != "":
		return " (" + remaining + ")"
	case id.Group == "" && id.Kind == "Namespace":
		return " (its conditions list the remaining content)"
	}
	return ""
}

// maxContentText is the maximum length in bytes of one namespace condition in a message.
const maxContentText = 500

// definitionCleanup is the finalizer of a CRD whose objects the API server deletes first.
const definitionCleanup = "customresourcecleanup.apiextensions.k8s.io"

// fighting returns the verdict on an object whose repair is paused. Another client must not be able to fail the release. An update delays
// the dependents of the object, and other modes only report the fight. It is a failure only for objects that give other clients power over
// the cluster.
func fighting(t *task, mode release.Mode, r *drift.Repairs) gate.Verdict {
	v := gate.Verdict{State: gate.Settled, Patience: gate.Notice, Reason: api.ReasonFight, Message: fmt.Sprintf(
		"%s was repeatedly %s%s: stop that client or exclude the object with an override in the ClusterVersion%s; next repair at %s",
		t.id, r.Last.Reason, r.Last.By(), r.Last.Advice(), r.TruceEnd.UTC().Format("15:04:05Z"))}
	switch updating := mode == release.Updating; {
	case t.vital && updating:
		v.State, v.Patience = gate.Failed, gate.None
	case t.vital:
		v.Patience = gate.Report
	case updating:
		v.State, v.Patience = gate.Waiting, gate.UntilSlow
	}
	return v
}

// isVital reports whether a client that can change the object gains power over the cluster or the operator. Such objects are RBAC rules,
// admission webhooks and policies, CRDs, and the operator's own objects.
func isVital(n *taskgraph.Node) bool {
	switch n.Manifest.GVK().Group {
	case "rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io":
		return true
	}
	return n.Component == api.OperatorComponent
}
