package apply

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// unsetReplicas returns the field that the kind's scale subresource writes, if the manifest leaves it out; otherwise nil. It reports whether
// the field may be ours. Watches show only spec.replicas.
func (a *Applier) unsetReplicas(m *manifest.Manifest, mapping kinds.Mapping) (fields []string, mayBeOurs bool) {
	if mapping.Replicas == "" {
		return nil, false
	}
	fields = strings.Split(strings.TrimPrefix(mapping.Replicas, "."), ".")
	if !m.LeavesOut(fields...) {
		return nil, false
	}
	return fields, !a.options.ReplicasForeign || mapping.Replicas != kinds.DefaultReplicas
}

// releaseReplicas gives up the number of replicas if the manifest no longer sets it, so that the workload keeps its pods. Otherwise the
// apply would remove the field, and the server would set its default of one.
func (s *submission) releaseReplicas(ctx context.Context) error {
	var conflict error
	for range attempts {
		live, err := s.applier.client.Get(ctx, s.target)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		entries, owned := ownership.GiveUp(live.ManagedFields, s.replicasPath())
		if !owned {
			return nil
		}
		// A patch of managedFields that keeps entries of another version can make the server discard all of them.
		if moved, err := s.inVersion(ctx, entries, nil); err != nil {
			return err
		} else if moved != nil {
			entries = moved
		}
		_, conflict = s.applier.client.SetManagers(ctx, s.target, live.ResourceVersion, entries)
		switch {
		case conflict == nil:
			s.released = s.replicasField() + " keeps its value, because the manifest no longer sets it"
			return nil
		case failure.DeniedBy(conflict) != "":
			return s.replicasRefused(conflict)
		case !apierrors.IsConflict(conflict):
			return fmt.Errorf("giving up %s: %w", s.replicasField(), conflict)
		}
	}
	return fmt.Errorf("giving up %s: %w", s.replicasField(), conflict)
}

// replicasRefused describes why the number of replicas cannot be given up. An apply would remove the pods.
func (s *submission) replicasRefused(refused error) error {
	field := s.replicasField()
	return &failure.Diagnosis{
		Cause: "the number of replicas would be lost", Fields: []string{field}, Text: "giving up " + field + ": " + refused.Error(), Err: refused,
		Remedy: fmt.Sprintf("exempt %s from %s, which forbids to change metadata.managedFields, or set %s in the manifest",
			api.FieldManager, failure.DeniedBy(refused), field),
	}
}

// predictReplicas adds the live number of replicas to the body if releaseReplicas would give it up, which a dry run cannot store. It returns
// an error if that would be denied. If the object cannot be read, the dry run reports why.
func (s *submission) predictReplicas(ctx context.Context) error {
	live, err := s.applier.client.Object(ctx, s.target)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	value, found, _ := unstructured.NestedFieldNoCopy(live.Object, s.replicas...)
	entries, owned := ownership.GiveUp(live.GetManagedFields(), s.replicasPath())
	if !owned || !found {
		return nil
	}
	err = s.applier.client.TrySetManagers(ctx, s.target, live.GetResourceVersion(), entries)
	if err != nil && failure.DeniedBy(err) != "" {
		return s.replicasRefused(err)
	}
	s.body = with(s.body, s.replicas, value)
	s.released = fmt.Sprintf("%s stays at %v, because the manifest no longer sets it", s.replicasField(), value)
	return nil
}

// replicasField returns the field for messages, such as spec.replicas.
func (s *submission) replicasField() string { return strings.Join(s.replicas, ".") }

func (s *submission) replicasPath() fieldpath.Path {
	var path fieldpath.Path
	for _, field := range s.replicas {
		path = append(path, fieldpath.PathElement{FieldName: &field})
	}
	return path
}
